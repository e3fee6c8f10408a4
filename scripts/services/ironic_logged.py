"""Ironic (API and conductor in one process), with a log of its API's requests.

    ironic_logged.py LOG [IRONIC ARGUMENTS...]

Two things are added. The log: one JSON object per request, written when the answer is complete, with the address and
the user agent that the client used, which Ironic's own log lacks. And a memory for PBKDF2: for every single call to a BMC
Ironic derives a key of its sessions from the password, with 600,000 rounds, a third of a second of processor time.
"""
import functools
import hashlib
import json
import os
import sys
import time

from ironic.command import singleprocess
from ironic.common import wsgi_service

LOG = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def logged(app):
    def answer(environ, start_response):
        begun, status = time.time(), []

        def start(line, *rest):
            status.append(int(line.split(' ', 1)[0]))
            return start_response(line, *rest)

        body = app(environ, start)
        size = 0
        try:
            for part in body:
                size += len(part)
                yield part
        finally:
            if hasattr(body, 'close'):
                body.close()
            query = environ.get('QUERY_STRING')
            line = {'time': round(begun, 3), 'seconds': round(time.time() - begun, 3), 'method': environ['REQUEST_METHOD'],
                    'path': environ.get('PATH_INFO', '') + ('?' + query if query else ''),
                    'status': status[-1] if status else 0, 'bytes': size, 'host': environ.get('HTTP_HOST', ''),
                    'agent': environ.get('HTTP_USER_AGENT', '')}
            os.write(LOG, (json.dumps(line) + '\n').encode())
    return answer


hashlib.pbkdf2_hmac = functools.lru_cache(maxsize=1024)(hashlib.pbkdf2_hmac)
selector = wsgi_service.app.VersionSelectorApplication
wsgi_service.app.VersionSelectorApplication = lambda: logged(selector())
sys.argv[0] = 'ironic'
sys.exit(singleprocess.main())
