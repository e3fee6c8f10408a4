/* Preloaded into User Mode Linux, whose kernel saves and restores 832 bytes of a process's extended registers: up to
 * AVX2. On a processor with more (AVX-512, AMX) the host's kernel refuses anything shorter than the whole (EFAULT), and no
 * process of the guest would ever start. So this reads the whole, replaces its beginning, and writes the whole back.
 * No process of the guest uses the rest: scripts/guest.d/init keeps the C library from using AVX-512. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long (*Ptrace)(enum __ptrace_request, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...)
{
    static Ptrace real;
    static char all[65536];
    va_list rest;
    va_start(rest, request);
    pid_t pid = va_arg(rest, pid_t);
    void *address = va_arg(rest, void *), *data = va_arg(rest, void *);
    va_end(rest);
    if (!real)
        real = (Ptrace)dlsym(RTLD_NEXT, "ptrace");
    if (request == PTRACE_SETREGSET && (unsigned long)address == NT_X86_XSTATE) {
        struct iovec given = *(struct iovec *)data, whole = {all, sizeof all};
        long answer = real(PTRACE_GETREGSET, pid, address, &whole);
        if (answer == 0 && whole.iov_len > given.iov_len) {
            memcpy(all, given.iov_base, given.iov_len);
            return real(PTRACE_SETREGSET, pid, address, &whole);
        }
    }
    return real(request, pid, address, data);
}
