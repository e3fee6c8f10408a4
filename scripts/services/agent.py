"""Stand-in for ironic-python-agent on every system of the lab but the real machine.

    agent.py LAB IRONIC_URL

While Ironic waits for the ramdisk of a node, this reports an inventory (`inspect wait`), or sends heartbeats and runs
RAID clean steps (`clean wait`). Steered per system by control.py, per node by `extra.lab`. Its inventory has the shape
of the real agent's, but it is no evidence for what a real inspection finds. Its requests carry the user agent
`lab-agent`.
"""
import base64
import http.server
import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request

import control

LAB, IRONIC = sys.argv[1], sys.argv[2]
SYSTEMS = {system['uuid']: system for system in control.systems(LAB)}
MIB, GIB = 2 ** 20, 2 ** 30
VERSION = '13.0.0'
HEADERS = {'X-OpenStack-Ironic-API-Version': '1.89', 'Content-Type': 'application/json', 'User-Agent': 'lab-agent'}
if os.environ.get('QUARRY_IRONIC_USER'):
    pair = os.environ['QUARRY_IRONIC_USER'] + ':' + os.environ['QUARRY_IRONIC_PASSWORD']
    HEADERS['Authorization'] = 'Basic ' + base64.b64encode(pair.encode()).decode()
CLEAN_STEPS = [{'interface': 'raid', 'step': step, 'priority': 0, 'reboot_requested': False, 'abortable': True}
               for step in ('create_configuration', 'delete_configuration')]
CLEAN_STEPS.append({'interface': 'deploy', 'step': 'erase_devices_metadata', 'priority': 0, 'reboot_requested': False,
                    'abortable': True})


def say(*words):
    print(time.strftime('%T'), *words, flush=True)


def ironic(method, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(IRONIC + path, data, HEADERS, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b'null')


def disk(system, number, name, **more):
    """Numbers are unique in the lab: each system has its own range."""
    wwn = '0x5000c5%04x%06x' % (int(system['uuid'][-4:], 16), number)
    return {'name': name, 'model': 'LAB-SSD', 'vendor': 'ACME', 'size': 500 * GIB, 'rotational': False, 'wwn': wwn,
            'serial': '%s-%04d' % (system['name'], number), 'wwn_with_extension': wwn, 'wwn_vendor_extension': None,
            'hctl': '0:0:%d:0' % number, 'by_path': '/dev/disk/by-path/pci-0000:00:1f.2-scsi-0:0:%d:0' % number,
            'logical_sectors': 512, 'physical_sectors': 4096, 'tran': 'sas', **more}


def inventory(system, settings):
    count = settings.get('disks')
    if count is None:
        disks = [disk(system, n, '/dev/sd' + letter, rotational=n > 1) for n, letter in enumerate('abcd')]
    else:
        disks = [disk(system, n, '/dev/dm-%d' % n, hctl=None, tran=None, by_path=None) for n in range(count)]
    macs = settings.get('macs', [system['mac']])
    found = {
        'interfaces': [{'name': 'eno%d' % n, 'mac_address': mac, 'ipv4_address': '192.0.2.%d' % (10 + n),
                        'ipv6_address': None, 'has_carrier': True, 'lldp': None, 'vendor': '0x8086', 'product': '0x1572',
                        'client_id': None, 'biosdevname': None, 'driver': 'i40e', 'speed_mbps': 10000,
                        'pci_address': '0000:3b:00.%d' % n} for n, mac in enumerate(macs, 1)],
        'cpu': {'model_name': 'Lab CPU', 'frequency': '2400.0', 'count': 16, 'architecture': 'x86_64',
                'flags': ['fpu', 'aes', 'avx2'], 'socket_count': 2},
        'disks': disks, 'memory': {'total': 64 * GIB - 200 * MIB, 'physical_mb': 64 * 1024},
        'hostname': system['name'], 'bmc_address': '0.0.0.0', 'bmc_v6address': '::/0',
        'system_vendor': {'product_name': 'Lab 1U', 'serial_number': 'SN-' + system['name'], 'manufacturer': 'ACME',
                          'firmware': {'vendor': 'ACME', 'version': '1.2.3', 'build_date': '01/02/2026'}},
        'boot': {'current_boot_mode': 'uefi', 'pxe_interface': macs[0] if macs else None}}
    return {**found, **settings.get('inventory', {})}


class Ramdisk:
    """One boot of the stand-in for one node: its token, and the commands that Ironic gave it."""

    def __init__(self):
        self.token, self.commands, self.settings = None, [], {}

    def command(self, name, parameters):
        answer = {'id': str(time.time_ns()), 'command_name': name, 'command_params': parameters,
                  'command_status': 'SUCCEEDED', 'command_error': None, 'command_result': {}}
        if name == 'get_clean_steps':
            answer['command_result'] = {'clean_steps': {'LabManager': CLEAN_STEPS},
                                        'hardware_manager_version': {'LabManager': '1'}}
        elif name == 'execute_clean_step':
            answer.update(command_status='RUNNING', command_result=None)
            threading.Thread(target=self.clean, args=(answer,), daemon=True).start()
        self.commands.append(answer)
        return answer

    def clean(self, command):
        step = command['command_params']['step']
        time.sleep(float(self.settings.get('step_seconds', 0.5)))
        if step['step'] == self.settings.get('fail_step'):
            text = self.settings.get('fail_message', 'the lab lets this step fail')
            command.update(command_status='FAILED', command_error={'type': 'CleaningError', 'message': text})
            return
        result = None
        if step['step'] == 'create_configuration':      # the real agent returns what was asked for, too
            result = command['command_params']['node']['driver_internal_info'].get('target_raid_config')
        command.update(command_status='SUCCEEDED', command_result={'clean_step': step, 'clean_result': result})


RAMDISKS = {}


class Api(http.server.BaseHTTPRequestHandler):
    """The agent's API, for all nodes: /NODE/v1/commands"""
    protocol_version = 'HTTP/1.1'

    def ramdisk(self):
        return RAMDISKS.get(self.path.split('/')[1])

    def reply(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        found = self.ramdisk()
        self.reply(200 if found else 404, {'commands': found.commands if found else []})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        found = self.ramdisk()
        if not found:
            return self.reply(404, {})
        self.reply(200, found.command(body['name'].split('.', 1)[1], body['params']))

    def log_message(self, text, *arguments):
        say(text % arguments)


def serve(node, system):
    identity, state = node['uuid'], node['provision_state']
    settings = {**control.read(LAB, system['name']), **(node['extra'].get('lab') or {})}
    if node['power_state'] != 'power on' or state in ('deploying', 'active'):      # with fast_track it runs until then
        RAMDISKS.pop(identity, None)
    if settings.get('silent'):
        return
    if state == 'inspect wait':
        path = '/v1/continue_inspection?node_uuid=' + identity
        answer = ironic('POST', path, {'inventory': inventory(system, settings)})
        ramdisk = RAMDISKS[identity] = Ramdisk()
        ramdisk.token = answer['config']['agent_token']         # the same answer as of a lookup; it is given out once
        say('inspected', identity, system['name'])
    elif state == 'clean wait':
        ramdisk = RAMDISKS.setdefault(identity, Ramdisk())
        ramdisk.settings = settings
        if not ramdisk.token:
            ramdisk.token = ironic('GET', '/v1/lookup?node_uuid=' + identity)['config']['agent_token']
        ironic('POST', '/v1/heartbeat/' + identity, {
            'callback_url': '%s/%s' % (CALLBACK, identity), 'agent_version': VERSION, 'agent_token': ramdisk.token})


def nodes():
    """Of emulated systems. Nodes of other drivers, and the real machine, are left alone."""
    for node in ironic('GET', '/v1/nodes?fields=uuid,provision_state,power_state,extra,driver_info&limit=1000')['nodes']:
        path = node['driver_info'].get('redfish_system_id') or ''
        system = SYSTEMS.get(path.rstrip('/').rsplit('/', 1)[-1])
        if system and not system['real']:
            yield node, system


server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Api)
threading.Thread(target=server.serve_forever, daemon=True).start()
CALLBACK = 'http://127.0.0.1:%d' % server.server_port
say('serving', CALLBACK)
while True:
    try:
        for node, system in nodes():
            try:
                serve(node, system)
            except urllib.error.HTTPError as fault:     # 409 while Ironic keeps the node locked: again in the next round
                text = fault.read()[:300]
                say(node['uuid'], node['provision_state'], fault.code, text)
                if b'agent token' in text:              # the system was off in between: this is another boot
                    RAMDISKS.pop(node['uuid'], None)
            except ValueError as fault:                 # a control file that is not JSON, or has unknown keys
                say(fault)
    except OSError as fault:                            # Ironic is stopped
        say(fault)
    time.sleep(0.4)
