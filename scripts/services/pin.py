"""Writes a file of requirements: exact versions, and the hashes of the wheels for every supported Python.

    pin.py REPORT...        reports of `pip install --report`, one per version of Python; prints the file

Every report must name the same versions.
"""
import json
import sys

pins = {}
for path in sys.argv[1:]:
    with open(path) as file:
        report = json.load(file)
    for item in report['install']:
        name, version = item['metadata']['name'].lower().replace('_', '-'), item['metadata']['version']
        if not item['download_info']['url'].endswith('.whl'):
            sys.exit('%s %s has no wheel' % (name, version))
        known = pins.setdefault(name, (version, set()))
        if known[0] != version:
            sys.exit('%s: %s and %s' % (name, known[0], version))
        known[1].add(item['download_info']['archive_info']['hash'].replace('=', ':'))
print('# Written by `scripts/setup pin-services`.')
for name, (version, hashes) in sorted(pins.items()):
    print('%s==%s %s' % (name, version, ' '.join('--hash=' + one for one in sorted(hashes))))
