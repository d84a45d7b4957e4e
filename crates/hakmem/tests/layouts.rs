//! What GlobalAlloc promises of each layout: alignment, contents, zeros; by one thread and by many.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::hint::black_box;
use std::sync::mpsc;
use std::thread;

#[global_allocator]
static ALLOCATOR: hakmem::Hakmem = hakmem::Hakmem;

/// Live blocks, each with contents of its own, so that two that overlap are seen.
struct Block {
    start: *mut u8,
    layout: Layout,
    seed: u8,
}
unsafe impl Send for Block {}

fn byte(seed: u8, index: usize) -> u8 {
    (index as u8).wrapping_mul(31) ^ (index >> 8) as u8 ^ seed
}

impl Block {
    fn new(size: usize, align: usize, seed: u8, zeroed: bool) -> Block {
        let layout = Layout::from_size_align(size, align).unwrap();
        let start = unsafe { if zeroed { alloc_zeroed(layout) } else { alloc(layout) } };
        assert!(!start.is_null() && start.addr() % align == 0, "{layout:?} {start:?}");
        let mut block = Block { start, layout, seed };
        if zeroed {
            assert!(block.bytes().iter().all(|byte| *byte == 0), "{layout:?} is not zero");
        }
        block.fill(0);
        block
    }

    fn bytes(&mut self) -> &mut [u8] {
        unsafe { std::slice::from_raw_parts_mut(self.start, self.layout.size()) }
    }

    fn fill(&mut self, from: usize) {
        let seed = self.seed;
        self.bytes().iter_mut().enumerate().skip(from).for_each(|(index, place)| *place = byte(seed, index));
    }

    fn check(&mut self, most: usize) {
        let seed = self.seed;
        let wrong =
            self.bytes().iter().take(most).enumerate().position(|(index, found)| *found != byte(seed, index));
        assert_eq!(wrong, None, "{:?}", self.layout);
    }

    fn resize(&mut self, size: usize) {
        let kept = size.min(self.layout.size());
        self.start = unsafe { realloc(self.start, self.layout, size) };
        self.layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        assert!(
            !self.start.is_null() && self.start.addr() % self.layout.align() == 0,
            "{:?} {:?}",
            self.layout,
            self.start
        );
        assert!(unsafe { hakmem::usable_size(self.start) } >= size);
        self.check(kept);
        self.fill(kept);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.check(usize::MAX);
        unsafe { dealloc(self.start, self.layout) };
    }
}

const SIZES: [usize; 14] =
    [1, 15, 16, 17, 100, 1000, 1024, 1025, 4096, 20_000, 32_768, 32_769, 100_000, 1 << 20];

#[test]
fn every_alignment() {
    for align in (0..=21).map(|shift| 1_usize << shift) {
        let mut blocks = Vec::new();
        for (index, size) in SIZES.iter().enumerate() {
            for zeroed in [false, true] {
                blocks.push(Block::new(*size, align, index as u8, zeroed));
            }
        }
        for (index, block) in blocks.iter_mut().enumerate() {
            block.resize(SIZES[(index * 5 + 3) % SIZES.len()]);
        }
        for (index, block) in blocks.iter_mut().enumerate() {
            block.resize(SIZES[(index * 3 + 1) % SIZES.len()]);
        }
    }
}

fn resident_kib() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// A large zeroed block costs no memory before it is written, whatever its alignment is.
#[test]
fn zeroed_and_untouched() {
    const BYTES: usize = (8 << 20) + 100;
    for align in [32, 128, 256, 4096] {
        let layout = Layout::from_size_align(BYTES, align).unwrap();
        let before = resident_kib();
        // SAFETY: the layout is of more than 0 bytes, and each block goes back with it.
        let blocks: Vec<*mut u8> = (0..16).map(|_| unsafe { alloc_zeroed(layout) }).collect();
        let grown = resident_kib().saturating_sub(before);
        for block in blocks {
            assert!(!block.is_null() && block.addr() % align == 0);
            unsafe { dealloc(block, layout) };
        }
        assert!(grown < 32 << 10, "{grown} KiB for an alignment of {align}");
    }
}

#[test]
fn zeroed_after_use() {
    for align in [8, 64, 4096, 1 << 16, 1 << 17] {
        for size in SIZES {
            drop((0..20).map(|seed| Block::new(size, align, seed | 1, false)).collect::<Vec<_>>());
            drop((0..20).map(|seed| Block::new(size, align, seed, true)).collect::<Vec<_>>());
        }
    }
}

#[test]
fn vectors_grow_and_shrink() {
    #[derive(Clone, PartialEq, Debug)]
    #[repr(align(128))]
    struct Padded(usize);
    let (mut plain, mut padded) = (Vec::new(), Vec::new());
    for number in 0..50_000 {
        plain.push(number);
        padded.push(Padded(number));
    }
    for length in [49_999, 30_000, 12_000, 3000, 500, 20, 1] {
        plain.truncate(length);
        plain.shrink_to_fit();
        padded.truncate(length);
        padded.shrink_to_fit();
        assert!(plain.iter().copied().eq(0..length));
        assert!(padded.iter().map(|row| row.0).eq(0..length));
        // What was left in place is no more than half unused.
        let usable = unsafe { hakmem::usable_size(padded.as_ptr().cast()) };
        assert!(usable <= padded.capacity() * 2 * 128, "{usable} for {length}");
    }
}

/// The sequence of Vigna's splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % bound as u64) as usize
    }

    fn size(&mut self) -> usize {
        let shift = self.below(17);
        1 + self.below(1 << shift)
    }
}

#[test]
fn random_sequences() {
    let mut random = Random(1);
    let mut blocks: Vec<Block> = Vec::new();
    for step in 0..20_000 {
        let (choice, at, size, align) =
            (random.below(10), random.below(300), random.size(), 1 << random.below(9));
        if at >= blocks.len() {
            blocks.push(Block::new(size, align, step as u8, choice < 3));
        } else if choice < 5 {
            drop(blocks.swap_remove(at));
        } else {
            blocks[at].resize(size);
        }
    }
}

/// Each thread makes blocks, changes those of its left neighbour and frees them.
#[test]
fn threads_free_each_others_blocks() {
    const THREADS: usize = 8;
    let (mut senders, mut receivers): (Vec<_>, Vec<_>) =
        (0..THREADS).map(|_| mpsc::sync_channel::<Block>(64)).unzip();
    senders.rotate_left(1);
    let threads: Vec<_> = senders
        .drain(..)
        .zip(receivers.drain(..))
        .enumerate()
        .map(|(number, (sender, receiver))| {
            thread::spawn(move || {
                let mut random = Random(number as u64);
                let taker = thread::spawn(move || {
                    let mut count = 0;
                    let mut random = Random(count);
                    for mut block in receiver {
                        if random.below(4) == 0 {
                            block.resize(random.size());
                        }
                        count += 1;
                    }
                    count
                });
                for step in 0..3000 {
                    sender
                        .send(Block::new(random.size(), 1 << random.below(8), step as u8, step % 5 == 0))
                        .unwrap();
                }
                drop(sender);
                taker.join().unwrap()
            })
        })
        .collect();
    let count: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(count, 3000 * THREADS as u64);
}

#[test]
fn thread_local_destructors_allocate() {
    struct Last(Vec<u64>);
    impl Drop for Last {
        fn drop(&mut self) {
            let more: Vec<u64> = self.0.iter().map(|number| number + 1).collect();
            assert_eq!(more.iter().sum::<u64>(), 500_500);
        }
    }
    thread_local!(static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) });
    for _ in 0..200 {
        thread::spawn(|| LAST.set(Some(Last((0..1000).collect())))).join().unwrap();
    }
}

#[test]
fn too_large_is_null() {
    for align in [1, 16, 64, 4096, 1 << 21] {
        let layout = Layout::from_size_align(isize::MAX as usize - align + 1, align).unwrap();
        unsafe {
            assert!(black_box(alloc(layout)).is_null()); // or the compiler leaves it out, and has it succeed
            assert!(black_box(alloc_zeroed(layout)).is_null());
        }
        let block = Block::new(100, align, 7, false);
        assert!(unsafe { black_box(realloc(block.start, block.layout, layout.size())) }.is_null());
        drop(block); // which has its contents still
    }
    assert!(Vec::<u8>::new().try_reserve_exact(isize::MAX as usize).is_err());
}

/// All of the above again, in a process that has the secure level: there a block has the very bytes that it was asked for with.
#[test]
fn the_same_under_the_secure_level() {
    const MARK: &str = "CRATE_TEST_SECURE";
    if std::env::var_os(MARK).is_some() {
        // A block of large alignment that shrinks is freed with the size that it has then.
        for (before, after) in [(640, 384), (640, 600), (4096, 64), (100_000, 60_000)] {
            let mut block = Block::new(before, 64, 9, false);
            block.resize(after);
            drop(block);
        }
        return;
    }
    let again = std::process::Command::new(std::env::current_exe().unwrap())
        .env("HAKMEM_SECURE", "1")
        .env(MARK, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stderr) + String::from_utf8_lossy(&again.stdout);
    assert!(again.status.success(), "{:?} {said}", again.status);
}
