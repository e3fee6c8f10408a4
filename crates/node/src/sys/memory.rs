//! Keeping a process small that sleeps most of its life. Nothing here changes what any memory holds.

use std::ffi::{c_char, c_int, c_void};

/// Makes the allocator give back what it does not need: large buffers to the kernel at once, and two arenas for all
/// threads instead of eight for each core. An agent sleeps most of its life and should be small while it does.
pub fn keep_memory_small() {
    const M_TRIM_THRESHOLD: c_int = -1;
    const M_MMAP_THRESHOLD: c_int = -3;
    const M_ARENA_MAX: c_int = -8;
    for (parameter, value) in
        [(M_ARENA_MAX, 2), (M_MMAP_THRESHOLD, 128 << 10), (M_TRIM_THRESHOLD, 128 << 10)]
    {
        // SAFETY: mallopt takes two numbers and may be called at any time. A refusal changes nothing.
        unsafe { mallopt(parameter, value) };
    }
}

/// Gives free pages back to the kernel, also those in the middle of the heap, and lets go of the program's own code
/// until it is needed again. A millisecond or two: for quiet moments.
pub fn give_memory_back() {
    // SAFETY: malloc_trim takes a number and may be called at any time.
    unsafe { malloc_trim(0) };
    let_go_of_code();
}

/// For a buffer that begins and ends where a large page does. Best effort: an administrator may not want any.
pub fn prefer_a_large_page(buffer: &mut [u8]) {
    // SAFETY: the memory is ours and stays as it is; what backs it changes, not what it holds.
    let _ = unsafe {
        rustix::mm::madvise(
            buffer.as_mut_ptr().cast(),
            buffer.len(),
            rustix::mm::Advice::LinuxHugepage,
        )
    };
}

/// Most code is for the start, for scans and for errors, and stays mapped after it ran once. What the agent needs while
/// it waits comes back from the page cache, a few dozen pages with each fault.
fn let_go_of_code() {
    // SAFETY: the callback has the type that dl_iterate_phdr wants and keeps nothing of what it is shown.
    unsafe { dl_iterate_phdr(Some(let_go), std::ptr::null_mut()) };
}

/// Called for the executable first, and for nothing else: it answers "stop".
///
/// Libraries are left alone: they are small, and mapped by others as well.
#[cfg(target_pointer_width = "64")]
unsafe extern "C" fn let_go(object: *const Loaded, _: usize, _: *mut c_void) -> c_int {
    const PT_LOAD: u32 = 1;
    const PF_W: u32 = 2;
    let page = rustix::param::page_size();
    // SAFETY: the loader shows a valid object for the time of this call, with `count` headers that stay for ever.
    let (base, headers) = unsafe {
        (
            (*object).base,
            std::slice::from_raw_parts((*object).headers, usize::from((*object).count)),
        )
    };
    // Never a segment that may be written to: what the loader and we wrote there is in no file. That includes the
    // part which the loader makes read-only when it has filled it in: its segment's header says "writable".
    for segment in
        headers.iter().filter(|segment| segment.kind == PT_LOAD && segment.flags & PF_W == 0)
    {
        let begin = (base + segment.address).next_multiple_of(page);
        let end = (base + segment.address + segment.memory_size) / page * page;
        if begin < end {
            // SAFETY: these pages are the file's and were never written; the next access gets the same bytes
            // from it. A refusal changes nothing.
            let _ = unsafe {
                rustix::mm::madvise(
                    begin as *mut c_void,
                    end - begin,
                    rustix::mm::Advice::LinuxDontNeed,
                )
            };
        }
    }
    1
}

#[cfg(not(target_pointer_width = "64"))]
unsafe extern "C" fn let_go(_: *const Loaded, _: usize, _: *mut c_void) -> c_int {
    1
}

/// The beginning of link.h's dl_phdr_info.
#[repr(C)]
struct Loaded {
    base: usize,
    name: *const c_char,
    headers: *const Segment,
    count: u16,
}

/// elf.h's Elf64_Phdr.
#[repr(C)]
struct Segment {
    kind: u32,
    flags: u32,
    offset: usize,
    address: usize,
    physical: usize,
    file_size: usize,
    memory_size: usize,
    alignment: usize,
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        callback: Option<unsafe extern "C" fn(*const Loaded, usize, *mut c_void) -> c_int>,
        data: *mut c_void,
    ) -> c_int;
}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn mallopt(parameter: c_int, value: c_int) -> c_int;
    fn malloc_trim(keep: usize) -> c_int;
}

/// Other C libraries have no such settings.
#[cfg(not(target_env = "gnu"))]
unsafe fn mallopt(_: c_int, _: c_int) -> c_int {
    0
}

#[cfg(not(target_env = "gnu"))]
unsafe fn malloc_trim(_: usize) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, thread};

    static RELOCATED: &[&str] = &["first", "second"];

    #[test]
    fn code_and_data_are_as_before_while_others_run() {
        let resident = || -> u64 {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("RssFile:"))
                .unwrap()
                .trim()
                .to_owned();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let others: Vec<_> = (0..4)
            .map(|_| {
                thread::spawn(|| {
                    (0..200)
                        .map(|n| format!("{n:?} {:?}", std::env::args().count()).len())
                        .sum::<usize>()
                })
            })
            .collect();
        let before = resident();
        for _ in 0..20 {
            give_memory_back();
            assert_eq!(RELOCATED.join(" "), "first second");
        }
        let sums: Vec<usize> = others.into_iter().map(|other| other.join().unwrap()).collect();
        assert!(sums.windows(2).all(|pair| pair[0] == pair[1]));
        assert!(resident() <= before + 1024, "{before} KiB before, {} after", resident());
    }
}
