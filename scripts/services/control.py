"""The control files of the services lab: CONTROL/NAME.json, one per system, written by `services-lab set` and by tests.

A file that does not exist means no fault. Keys of the BMC:
  bmc       "up" (default), "down" (connections are refused) or "hung" (accepts them and never answers)
  password  what the BMC accepts instead of the lab's password
  delay     seconds before each answer: Ironic keeps the node locked for as long as it talks to the BMC
  volumes   text of the error with which every change of a volume fails
Keys of the stand-in agent, which a node may also have in `extra.lab` (those win):
  silent    true: the ramdisk never comes up
  disks     number of multipath disks in the inventory, instead of four plain ones
  macs      MAC addresses of the interfaces, instead of the system's own
  inventory merged over the inventory
  step_seconds, fail_step, fail_message    duration of a clean step; the step that fails, and its error
"""
import json
import os

KEYS = {'bmc', 'password', 'delay', 'volumes', 'silent', 'disks', 'macs', 'inventory', 'step_seconds', 'fail_step',
        'fail_message'}


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
    unknown = set(found) - KEYS
    if unknown:
        raise ValueError('unknown keys in the control file of %s: %s' % (name, ', '.join(sorted(unknown))))
    return found
