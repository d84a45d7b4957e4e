//! The process's malloc is ours: every name of the family, for Rust and for C, and what is stated wrongly is found.

use std::ffi::{CStr, CString, c_void};
use std::hint::black_box;
use std::process::Command;

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

/// The file and the base address of what holds a symbol that any library of the process would find.
fn found(name: &str) -> Option<(String, usize)> {
    let name = CString::new(name).unwrap();
    unsafe {
        let address = libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let mut info: libc::Dl_info = std::mem::zeroed();
        (!address.is_null() && libc::dladdr(address, &mut info) != 0)
            .then(|| (CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned(), info.dli_fbase as usize))
    }
}

fn own_base() -> usize {
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        assert_ne!(libc::dladdr(own_base as *const c_void, &mut info), 0);
        info.dli_fbase as usize
    }
}

#[test]
fn whole_family_is_the_programs() {
    let mut names = vec![
        "malloc",
        "calloc",
        "realloc",
        "free",
        "reallocarray",
        "posix_memalign",
        "aligned_alloc",
        "memalign",
        "valloc",
    ];
    names.extend([
        "pvalloc",
        "malloc_usable_size",
        "malloc_trim",
        "mallinfo",
        "mallinfo2",
        "mallopt",
        "malloc_info",
        "malloc_stats",
    ]);
    names.extend(["__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free", "__libc_memalign"]);
    for name in names {
        let (file, base) = found(name).unwrap_or_else(|| panic!("{name} is nowhere"));
        assert_eq!(base, own_base(), "{name} is in {file}");
    }
    // The others are there too, as linking by name shows: libc has had none of them for long.
    unsafe extern "C" {
        fn free_sized(block: *mut c_void, size: usize);
        fn free_aligned_sized(block: *mut c_void, align: usize, size: usize);
        #[link_name = "_ZnwmSt11align_val_t"]
        fn operator_new(size: usize, align: usize) -> *mut c_void;
        #[link_name = "_ZdlPvmSt11align_val_t"]
        fn operator_delete(block: *mut c_void, size: usize, align: usize);
    }
    unsafe {
        free_sized(libc::malloc(1000), 1000);
        free_aligned_sized(libc::memalign(256, 1000), 256, 1000);
        let block = operator_new(100, 64);
        assert!(hakmem::usable_size(block.cast()) >= 100 && block.addr() % 64 == 0);
        operator_delete(block, 100, 64);
    }
}

#[test]
fn no_shared_library() {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains("libhakmem"), "{maps}");
    assert_eq!(hakmem::version(), env!("CARGO_PKG_VERSION"));
}

/// Blocks of that size and a little more: a heap's first two of a class may be of a coarser one.
fn handed_out(block_bytes: u32) -> u64 {
    let all = block_bytes..=block_bytes + 256;
    hakmem::stats()
        .classes()
        .iter()
        .filter(|class| all.contains(&class.block_bytes))
        .map(|class| class.alloc_count)
        .sum()
}

#[test]
fn boxes_and_strings_of_c_are_counted() {
    let before = handed_out(896);
    let boxes: Vec<Box<[u8; 890]>> = (0..10_000).map(|_| black_box(Box::new([1; 890]))).collect();
    let between = handed_out(896);
    assert!(between - before > 9_800, "{before} {between}"); // other threads take words meanwhile

    let text = CString::new(vec![b'x'; 890]).unwrap();
    let copies: Vec<*mut libc::c_char> =
        (0..10_000).map(|_| unsafe { libc::strdup(text.as_ptr()) }).collect();
    let after = handed_out(896);
    assert!(after - between > 9_800, "{between} {after}");
    for copy in copies {
        unsafe {
            assert_eq!(CStr::from_ptr(copy), text.as_c_str());
            assert!(hakmem::usable_size(copy.cast()) >= 891); // aborts if the block is not ours
            libc::free(copy.cast());
        }
    }
    drop(boxes);
}

#[test]
fn blocks_of_libc_are_ours() {
    unsafe {
        let path = libc::realpath(c"/proc/../usr".as_ptr(), std::ptr::null_mut());
        assert_eq!(CStr::from_ptr(path), c"/usr");
        assert!(hakmem::usable_size(path.cast()) >= 5);
        // What C allocated Rust may free, where size and alignment are right.
        let list = libc::malloc(4 * 100).cast::<u32>();
        list.write_bytes(0, 100);
        let mut list = Vec::from_raw_parts(list, 100, 100);
        list.extend(0..1000);
        assert_eq!(list[1099], 999);
        libc::free(path.cast());
        // And the other way round.
        libc::free(Box::into_raw(Box::new([0_u64; 33])).cast());
        let (mut line, mut room) = (std::ptr::null_mut(), 0);
        let file = libc::fopen(c"/proc/self/maps".as_ptr(), c"r".as_ptr());
        assert!(libc::getline(&mut line, &mut room, file) > 0);
        assert!(hakmem::usable_size(line.cast()) >= room);
        libc::fclose(file);
        libc::free(line.cast());
    }
}

#[test]
fn stats_and_collect() {
    let large = black_box(vec![1_u8; 64 << 20]);
    let stats = hakmem::stats();
    assert!(stats.large_bytes >= 64 << 20 && stats.large_count >= 1 && stats.live_bytes > stats.large_bytes);
    assert!(stats.resident_bytes >= 64 << 20 && stats.heap_count >= 1);
    assert!(stats.classes().len() > 50 && stats.classes().is_sorted_by_key(|class| class.block_bytes));
    assert!(
        stats.counters().count() > 20
            && stats.counters().any(|(name, value)| name == "large_alloc" && value > 0)
    );
    assert!(format!("{stats:?}").contains("live_bytes"));
    drop(large);
    let collected = hakmem::collect();
    let after = hakmem::stats();
    assert!(
        collected > 0 && after.returned_bytes >= stats.returned_bytes + (32 << 20),
        "{collected} {after:?}"
    );
    let json = hakmem::stats_json();
    assert!(json.starts_with('{') && json.ends_with("}\n"), "{json}");
    for (name, _) in stats.counters() {
        assert!(json.contains(&format!("\"{name}\"")), "{name}");
    }
}

#[test]
fn options() {
    use hakmem::{Error, option_get, option_set};
    assert_eq!(option_get("HAKMEM_FREE_SHARE").as_deref(), Ok("8"));
    assert_eq!(option_set("free_share", "16"), Ok(()));
    assert_eq!(option_get("free_share").as_deref(), Ok("16"));
    assert_eq!(option_set("free_share", "0"), Err(Error::OutOfRange));
    assert_eq!(option_set("free_share", "some"), Err(Error::NotANumber));
    assert_eq!(option_set("free_share", "1\0"), Err(Error::NotANumber));
    assert_eq!(option_set("free_shares", "1"), Err(Error::UnknownOption));
    assert_eq!(option_set("stats", "1"), Err(Error::OnlyAtStart));
    assert_eq!(option_get("free_share").as_deref(), Ok("16"));
    assert_eq!(option_get("policy").as_deref(), Ok("")); // text, which nobody has set
    assert_eq!(option_get("polizy"), Err(Error::UnknownOption));
    assert_eq!(option_get("a\0b"), Err(Error::UnknownOption));
    assert_eq!(Error::OutOfRange.to_string(), "the number is out of the option's range");
}

#[test]
fn sites() {
    let (here, there) = (hakmem::site!(), hakmem::Site::new(0x1234).unwrap());
    assert_eq!(hakmem::Site::new(0), None);
    let blocks: Vec<_> = (0..100).map(|_| hakmem::alloc_at(500, here).unwrap()).collect();
    assert!(hakmem::alloc_at(usize::MAX / 2 + 1, there).is_none());
    let other = hakmem::alloc_at(100_000, there).unwrap();
    for block in blocks.iter().skip(1) {
        unsafe { hakmem::free_at(*block, here) };
    }
    let rows = hakmem::site_stats();
    let row = rows.iter().find(|row| row.site == here.get()).unwrap();
    assert_eq!((row.alloc_count, row.free_count, row.alloc_bytes - row.free_bytes), (100, 99, 512));
    assert!(rows.iter().any(|row| row.site == 0x1234 && row.alloc_bytes >= 100_000));
    unsafe {
        hakmem::free_at(blocks[0], here);
        hakmem::free_at(other, there);
    }
}

/// One misuse in a process of its own: this program again, for the test of that name alone.
fn misuse(name: &str, act: impl FnOnce()) -> String {
    if std::env::var("CRATE_TEST_MISUSE").is_ok() {
        act();
        std::process::exit(0);
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("CRATE_TEST_MISUSE", "1")
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    let said = String::from_utf8_lossy(&child.stderr).into_owned();
    assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{said}");
    said
}

#[test]
fn wrong_size_is_found() {
    let said = misuse("wrong_size_is_found", || unsafe {
        let layout = |size| std::alloc::Layout::from_size_align(size, 8).unwrap();
        let block = black_box(std::alloc::alloc(layout(120))); // or the compiler leaves the two out
        std::alloc::dealloc(block, layout(500));
    });
    assert!(
        said.contains("hakmem: free_sized: ")
            && said.contains("is a block of 128 bytes, but the caller says 500"),
        "{said}"
    );
}

#[test]
fn wrong_alignment_is_found() {
    let said = misuse("wrong_alignment_is_found", || unsafe {
        let layout = |align| std::alloc::Layout::from_size_align(112, align).unwrap();
        let first = std::alloc::alloc(layout(8));
        let second = std::alloc::alloc(layout(8)); // of two neighbours of 112 bytes one at least is odd
        for block in black_box([first, second]) {
            std::alloc::dealloc(block, layout(4096));
        }
    });
    assert!(
        said.contains("hakmem: free_aligned_sized: ")
            && said.contains("is not aligned to 4096, as the caller says"),
        "{said}"
    );
}

#[test]
fn double_free_is_found() {
    let said = misuse("double_free_is_found", || unsafe {
        let block = black_box(Box::into_raw(Box::new([0_u8; 100])));
        drop(Box::from_raw(block));
        drop(Box::from_raw(block));
    });
    assert!(said.contains("double free of 0x"), "{said}");
}
