"""The real machine of the lab: a User Mode Linux guest that follows its emulated BMC.

    machine.py MACHINE        reads MACHINE/machine.json, which services-lab writes

Power on with the virtual CD inserted and chosen: boots the ramdisk, with the real ironic-python-agent. Power on
otherwise: the same kernel, disks and shell without the agent, "the system on disk". Power off: SIGKILL, like a power
cut. A guest that powers off is reported to the BMC as Off, and one that left the file `reboot` is booted again. While
the BMC does not answer the machine stays as it is.
"""
import base64
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

HERE = os.path.abspath(sys.argv[1])
with open(os.path.join(HERE, 'machine.json')) as file:
    CONFIG = json.load(file)
PAIR = os.environ['QUARRY_BMC_USER'] + ':' + os.environ['QUARRY_BMC_PASSWORD']
HEADERS = {'Content-Type': 'application/json', 'Authorization': 'Basic ' + base64.b64encode(PAIR.encode()).decode()}


def say(*words):
    print('%s.%03d' % (time.strftime('%T'), time.time() % 1 * 1000), *words, flush=True)


def bmc(path='', body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(CONFIG['system'] + path, data, HEADERS), timeout=5) as answer:
        return json.loads(answer.read() or b'null')


def boot(mode):
    """In a PID namespace of its own: User Mode Linux leaves its process group, and everything must end with it."""
    kit = CONFIG['kit']
    command = ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc', kit + '/linux.uml', 'mem=' + CONFIG['memory'],
               'umid=machine', 'uml_dir=%s/uml/' % HERE, 'root=/dev/root', 'rootfstype=hostfs', 'rootflags=/', 'ro',
               'init=' + CONFIG['init'], 'LAB_MACHINE=' + HERE, 'LAB_LOG=' + CONFIG['log'], 'LAB_MODE=' + mode,
               'vec0:transport=tap,ifname=%s,mac=%s' % (CONFIG['tap'], CONFIG['mac']),
               'con0=null,fd:2', 'con1=null,fd:2', 'con=null', 'ssl=null', 'quiet', 'panic=-1']
    environment = {**os.environ, 'TMPDIR': '/dev/shm', 'LD_PRELOAD': kit + '/xstate.so'}
    with open(os.path.join(CONFIG['log'], 'console.log'), 'ab') as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)


def end(guest):
    guest.kill()
    guest.wait()


def publish(power, guest):
    path = os.path.join(HERE, 'state')
    with open(path + '.new', 'w') as file:
        json.dump({'power': power, 'running': guest is not None}, file)
    os.rename(path + '.new', path)


def stop(*_):
    if GUEST:
        end(GUEST)
    os._exit(0)


GUEST, power, known = None, None, None
signal.signal(signal.SIGTERM, stop)
ctypes.CDLL(None).prctl(1, signal.SIGKILL)                     # ends with the lab's first process
while True:
    try:
        system = bmc()
        power = system['PowerState']
    except (OSError, ValueError) as fault:
        say('the BMC does not answer:', fault)
        time.sleep(1)
        continue
    if GUEST and GUEST.poll() is not None:
        say('the guest ended with code', GUEST.returncode)
        GUEST = None
        if os.path.exists(HERE + '/reboot'):
            os.unlink(HERE + '/reboot')
            known = None
        elif power == 'On':
            bmc('/Actions/ComputerSystem.Reset', {'ResetType': 'ForceOff'})
            power = 'Off'
    if power != known:
        say('power', power)
        if GUEST:
            end(GUEST)
            GUEST = None
        if power == 'On':
            chosen = system['Boot']['BootSourceOverrideTarget'] == 'Cd' and bmc('/VirtualMedia/Cd')['Inserted']
            say('boot', 'agent' if chosen else 'disk')
            GUEST = boot('agent' if chosen else 'disk')
        known = power
    publish(power, GUEST)
    time.sleep(0.2)
