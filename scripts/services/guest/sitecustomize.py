"""For Python in the guest: faster children, nothing else.

oslo.concurrency passes a preexec_fn that only restores the handler of SIGPIPE, which subprocess does anyway. Without it
Python uses vfork: a third of the time per command under User Mode Linux.
"""
import functools
import subprocess

start = subprocess.Popen.__init__


def start_without(self, *arguments, preexec_fn=None, **named):
    if isinstance(preexec_fn, functools.partial) and preexec_fn.args == (None,) \
            and preexec_fn.func.__name__ == '_subprocess_setup':
        preexec_fn = None
    start(self, *arguments, preexec_fn=preexec_fn, **named)


subprocess.Popen.__init__ = start_without
