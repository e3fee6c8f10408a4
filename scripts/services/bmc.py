"""The BMCs of the lab: sushy-emulator with one listener per system, and what its fake driver lacks.

    bmc.py LAB PORT

The listener on PORT serves all systems and never has a fault: it is the lab's own. Each system has another one, at the
port of its address in systems.json, with a password, delays and faults of its own (control.py). Real BMCs have one
address each, too, and Ironic stores sessions per address.
Added to the fake driver: processors and memory, power changes without a random delay, volumes that can be created and
deleted. The emulator keeps its state in LAB/bmc, so a restarted one continues.
"""
import itertools
import os
import sys
import threading
import time
import urllib.parse

import bcrypt
import flask
from sushy_tools import error
from sushy_tools.emulator import main as emulator
from sushy_tools.emulator.resources.systems import fakedriver
from werkzeug import serving

import control

LAB, PORT = sys.argv[1], int(sys.argv[2])
USER, PASSWORD = os.environ['QUARRY_BMC_USER'], os.environ['QUARRY_BMC_PASSWORD']
GIB = 2 ** 30
app = emulator.app
numbers = itertools.count(time.time_ns() // 1000)


class Driver(fakedriver.FakeDriver):
    def set_power_state(self, identity, state):
        super().set_power_state(identity, state)
        system = self._get(identity)
        if system.get('pending_power'):
            # A restart is off for a second: machine.py must see it.
            system['pending_power']['apply_time'] = time.time() + ('Restart' in state)
            self._update(system)

    def get_total_memory(self, identity):
        return 64

    def get_total_cpus(self, identity):
        return 16

    def get_processors(self, identity):
        return [{'id': 'CPU%d' % i, 'socket': 'CPU %d' % i, 'model': 'Lab CPU', 'vendor': 'Lab', 'cores': 8, 'threads': 8}
                for i in (0, 1)]

    def find_or_create_storage_volume(self, data):
        return data['Id']


def refuse_change():
    text = flask.request.environ.get('lab.control', {}).get('volumes')
    if text:
        raise error.FishyError(text, code=500)


def create_volume(system, storage):
    refuse_change()
    wanted, drives = flask.request.json, app.drives.get_drives(system, storage)
    members = [link['@odata.id'] for link in wanted.get('Links', {}).get('Drives', [])]
    number, level = str(next(numbers)), wanted.get('RAIDType')
    app.volumes.add_volume(system, storage, {
        'Id': number, 'Name': wanted.get('Name') or 'volume-' + number, 'RAIDType': level, 'Drives': members,
        'VolumeType': 'Mirrored' if level == 'RAID1' else 'NonRedundant',
        # Without a size the controller takes what fits.
        'CapacityBytes': wanted.get('CapacityBytes') or min(drive['CapacityBytes'] for drive in drives)})
    return flask.Response(status=201, headers={'Location': flask.request.path + '/' + number})


def volume(identity, stg_id, vol_id):
    system = app.systems.uuid(identity)
    for found in app.volumes.get_volumes_col(system, stg_id) or []:
        if found['Id'] != vol_id:
            continue
        if flask.request.method == 'DELETE':
            refuse_change()
            app.volumes.delete_volume(system, stg_id, found)
            return '', 204
        shown = {key: found[key] for key in ('Id', 'Name', 'RAIDType', 'VolumeType', 'CapacityBytes')}
        return flask.jsonify({
            **shown, '@odata.type': '#Volume.v1_6_0.Volume', '@odata.id': flask.request.path,
            'Status': {'State': 'Enabled', 'Health': 'OK'},
            'Links': {'Drives': [{'@odata.id': drive} for drive in found['Drives']]}})
    raise error.NotFound()


def install_volumes():
    listed = app.view_functions['volumes_collection']

    def collection(identity, storage_id):
        if flask.request.method == 'POST':
            return create_volume(app.systems.uuid(identity), storage_id)
        return listed(identity, storage_id)

    app.view_functions['volumes_collection'] = collection
    app.view_functions['volume'] = volume
    path = '/redfish/v1/Systems/<identity>/Storage/<stg_id>/Volumes/<vol_id>'
    app.add_url_rule(path, 'delete_volume', volume, methods=['DELETE'])


def password_file(name, password):
    """As cheap as bcrypt permits: it is verified with every request."""
    path = os.path.join(LAB, 'bmc', 'password-' + name)
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()
    with open(path + '.new', 'w') as file:
        file.write('%s:%s\n' % (USER, hashed))
    os.rename(path + '.new', path)
    return path


class Quiet(serving.WSGIRequestHandler):
    """For machine.py, which asks five times a second."""

    def log_request(self, code='-', size='-'):
        pass


class Bmc:
    """One listener. `system` is None for the lab's own."""

    def __init__(self, system, port):
        self.name, self.port, self.server, self.password = system or 'all', port, None, None
        self.settings = {}
        self.watched = system is not None
        self.follow()

    def follow(self):
        """Makes the listener what its control file asks for."""
        if self.watched:
            self.settings = control.read(LAB, self.name)
        password = self.settings.get('password', PASSWORD)
        if password != self.password:
            file, self.password = password_file(self.name, password), password
            self.checked = emulator.RedfishAuthMiddleware(app.wsgi_app, file)
        down = self.settings.get('bmc') == 'down'
        if down and self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        elif not down and not self.server:
            handler = None if self.watched else Quiet
            self.server = serving.make_server('127.0.0.1', self.port, self.answer, threaded=True, request_handler=handler)
            threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def answer(self, environ, start_response):
        while self.settings.get('bmc') == 'hung':
            time.sleep(0.1)
        time.sleep(float(self.settings.get('delay', 0)))
        environ['lab.control'] = self.settings
        return self.checked(environ, start_response)


def main():
    systems = control.systems(LAB)
    ids = [system['uuid'] for system in systems]
    drives = ['d1', 'd2', 'd3', 'd4']
    fakedriver.FakeDriver = Driver
    app.configure(extra_config={
        'SUSHY_EMULATOR_FAKE_DRIVER': True,
        'SUSHY_EMULATOR_STATE_DIR': os.path.join(LAB, 'bmc'),
        'SUSHY_EMULATOR_FAKE_SYSTEMS': [
            {'uuid': system['uuid'], 'name': system['name'], 'power_state': 'Off', 'external_notifier': False,
             'nics': [{'mac': system['mac'], 'ip': '127.0.0.1'}]} for system in systems],
        'SUSHY_EMULATOR_STORAGE': {one: [
            {'Id': '1', 'Name': 'RAID Controller', 'Drives': drives,
             'StorageControllers': [{'MemberId': '0', 'Name': 'Lab RAID', 'SpeedGbps': 12}]}] for one in ids},
        'SUSHY_EMULATOR_DRIVES': {(one, '1'): [
            {'Id': drive, 'Name': 'Drive ' + drive, 'CapacityBytes': 500 * GIB, 'Protocol': 'SAS'}
            for drive in drives] for one in ids},
        'SUSHY_EMULATOR_VOLUMES': {(one, '1'): [] for one in ids}})
    install_volumes()
    app.systems                                     # created here, not by the first two requests at once
    bmcs = [Bmc(None, PORT)]
    bmcs += [Bmc(system['name'], urllib.parse.urlsplit(system['redfish']).port) for system in systems]
    print('serving', len(systems), 'systems', flush=True)
    while True:
        for bmc in bmcs:
            try:
                bmc.follow()
            except ValueError as fault:             # a control file that is not JSON, or has unknown keys
                print(bmc.name, fault, flush=True)
        time.sleep(0.1)


main()
