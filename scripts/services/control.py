"""The control files of the services lab: CONTROL/NAME.json, one per system, written by `services-lab set` and by tests.

A file that does not exist means no fault. Keys of the BMC:
  bmc       "up" (default), "down" (connections are refused) or "hung" (accepts them and never answers)
  password  what the BMC accepts instead of the lab's password
  delay     seconds before each answer: Ironic keeps the node locked for as long as it talks to the BMC
  volumes   text of the error with which every change of a volume fails
  built     merged over every volume that is created: the controller builds something else than it was asked for
  storage   false: the BMC lists no RAID controllers
Keys of the stand-in agent, which a node may also have in `extra.lab` (those win):
  silent    true: the ramdisk never comes up
  disks     number of multipath disks in the inventory, instead of four plain ones
  macs      MAC addresses of the interfaces, instead of the system's own
  inventory merged over the inventory
  step_seconds, fail_step, fail_message    duration of a clean step; the step that fails, and its error
"""
import json
import os
import sys

KEYS = {'bmc', 'password', 'delay', 'volumes', 'built', 'storage', 'silent', 'disks', 'macs', 'inventory', 'step_seconds',
        'fail_step', 'fail_message'}


def systems(lab):
    """The systems of the lab, as tests get them."""
    with open(os.path.join(lab, 'systems.json')) as file:
        return json.load(file)


def read(lab, name):
    try:
        with open(os.path.join(lab, 'control', name + '.json')) as file:
            found = json.load(file)
    except FileNotFoundError:
        return {}
    check(found)
    return found


def check(found):
    unknown = set(found) - KEYS
    if unknown:
        raise ValueError('no such fault: %s; there are: %s' % (', '.join(sorted(unknown)), ', '.join(sorted(KEYS))))
    if found.get('bmc', 'up') not in ('up', 'down', 'hung'):
        raise ValueError('bmc is up, down or hung, not %s' % found['bmc'])


if __name__ == '__main__':                             # checks the object on standard input
    try:
        check(json.load(sys.stdin))
    except ValueError as fault:
        sys.exit(str(fault))
