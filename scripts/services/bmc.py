"""The BMCs of the lab: sushy-emulator with one listener per system, and what its fake driver lacks.

    bmc.py LAB PORT

The listener on PORT serves all systems and never has a fault: it is the lab's own. Each system has another one, at the
port of its address in systems.json, with a password, delays and faults of its own (control.py). Real BMCs have one
address each, too, and Ironic stores sessions per address.
Added to the fake driver: processors and memory, power changes without a random delay, drives of two kinds on two RAID
controllers, volumes that can be created and deleted. A controller refuses what a real one refuses: drives that are in
use, too few of them, more than fits. The emulator keeps its state in LAB/bmc, so a restarted one continues.
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


# Id of a controller, its drives, their size in GiB and kind.
CONTROLLERS = [('1', ['d1', 'd2', 'd3', 'd4'], 500, 'SSD'), ('2', ['d5', 'd6'], 1000, 'HDD')]
# Redfish name of a level to: fewest and most drives, and how many of n drives hold data.
LEVELS = {'RAID0': (1, 32, lambda n: n), 'RAID1': (2, 2, lambda n: 1), 'RAID5': (3, 32, lambda n: n - 1),
          'RAID6': (4, 32, lambda n: n - 2), 'RAID10': (4, 32, lambda n: n // 2)}


def settings():
    return flask.request.environ.get('lab.control', {})


def refuse_change():
    if settings().get('volumes'):
        raise error.FishyError(settings()['volumes'], code=500)


def capacity(level, members, drives, wanted):
    """Of a volume. Without a size the controller takes what fits."""
    least, most, data = LEVELS.get(level, (1, 0, None))
    if not least <= len(members) <= most or (level == 'RAID10' and len(members) % 2):
        raise error.FishyError('%s cannot be built of %d drives' % (level, len(members)), code=400)
    fits = min(drives[member] for member in members) * data(len(members))
    if (wanted or 0) > fits:
        raise error.FishyError('%d bytes do not fit, only %d do' % (wanted, fits), code=400)
    return wanted or fits


def create_volume(system, storage):
    refuse_change()
    wanted = flask.request.json
    paths = [link['@odata.id'] for link in wanted.get('Links', {}).get('Drives', [])]
    drives = {drive['Id']: drive['CapacityBytes'] for drive in app.drives.get_drives(system, storage)}
    members = [path.rsplit('/', 1)[-1] for path in paths]
    unknown = [member for member in members if member not in drives]
    if unknown:
        raise error.FishyError('controller %s has no drive %s' % (storage, ', '.join(unknown)), code=400)
    taken = {path for other in app.volumes.get_volumes_col(system, storage) for path in other['Drives']}
    if taken & set(paths):
        raise error.FishyError('in use by a volume: %s' % ', '.join(sorted(taken & set(paths))), code=400)
    number, level = str(next(numbers)), wanted.get('RAIDType')
    app.volumes.add_volume(system, storage, {
        'Id': number, 'Name': wanted.get('Name') or 'volume-' + number, 'RAIDType': level, 'Drives': paths,
        'VolumeType': 'Mirrored' if level == 'RAID1' else 'NonRedundant',
        'CapacityBytes': capacity(level, members, drives, wanted.get('CapacityBytes')), **settings().get('built', {})})
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


def drive(identity, stg_id, drv_id):
    system = app.systems.uuid(identity)
    for found in app.drives.get_drives(system, stg_id):
        if found['Id'] == drv_id:
            return flask.jsonify({
                **found, '@odata.type': '#Drive.v1_4_0.Drive', '@odata.id': flask.request.path, 'Manufacturer': 'ACME',
                'Model': 'LAB-' + found['MediaType'], 'SerialNumber': '%s-%s' % (system[-4:], drv_id),
                'Revision': '1', 'Status': {'State': 'Enabled', 'Health': 'OK'}})
    raise error.NotFound()


def install_storage(ids):
    """The views of the emulator are replaced."""
    listed, controllers = app.view_functions['volumes_collection'], app.view_functions['storage_collection']
    for system in ids:
        for storage, *_ in CONTROLLERS:
            if app.volumes.get_volumes_col(system, storage) is None:        # else it is of an earlier start
                app.volumes._volumes.update({(system, storage): []})

    def storages(identity):
        if settings().get('storage') is False:
            return flask.jsonify({
                '@odata.type': '#StorageCollection.StorageCollection', '@odata.id': flask.request.path,
                'Name': 'Storage Collection', 'Members@odata.count': 0, 'Members': []})
        return controllers(identity)

    def collection(identity, storage_id):
        if flask.request.method == 'POST':
            return create_volume(app.systems.uuid(identity), storage_id)
        return listed(identity, storage_id)

    app.view_functions['volumes_collection'] = collection
    app.view_functions['volume'] = volume
    app.view_functions['drive_resource'] = drive
    app.view_functions['storage_collection'] = storages
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
    fakedriver.FakeDriver = Driver
    app.configure(extra_config={
        'SUSHY_EMULATOR_FAKE_DRIVER': True,
        'SUSHY_EMULATOR_STATE_DIR': os.path.join(LAB, 'bmc'),
        'SUSHY_EMULATOR_FAKE_SYSTEMS': [
            {'uuid': system['uuid'], 'name': system['name'], 'power_state': 'Off', 'external_notifier': False,
             'nics': [{'mac': system['mac'], 'ip': '127.0.0.1'}]} for system in systems],
        'SUSHY_EMULATOR_STORAGE': {one: [
            {'Id': storage, 'Name': 'RAID Controller ' + storage, 'Drives': drives,
             'StorageControllers': [{'MemberId': '0', 'Name': 'Lab RAID', 'SpeedGbps': 12}]}
            for storage, drives, _, _ in CONTROLLERS] for one in ids},
        'SUSHY_EMULATOR_DRIVES': {(one, storage): [
            {'Id': name, 'Name': 'Drive ' + name, 'CapacityBytes': size * GIB, 'Protocol': 'SAS', 'MediaType': kind}
            for name in drives] for one in ids for storage, drives, size, kind in CONTROLLERS}})
    install_storage(ids)
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
