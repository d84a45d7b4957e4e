//! raw.rs - reads the library's tables (rows.rs), of a live process or a dump.

use super::memory::Memory;
pub use super::rows::*;
use std::mem::size_of;

/// No table is larger: eight times as many live rows as the library has, and four times as long.
const TABLE_BYTES_MAX: u64 = 256 << 20;
const COUNTERS_MAX: u64 = 4096;
/// Of a counter's name, and what stands behind it.
const COUNTER_BYTES_LEAST: u64 = 16;

/// Blocks above 32 KiB that live.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Large {
    pub bytes: u64,
    pub count: u64,
}

/// The tables, each row of one moment.
pub struct Tables {
    pub published: Published,
    pub stacks: Vec<StackRow>,
    pub frames: Vec<u64>,
    pub live: Vec<LiveRow>, // those that are live
    pub threads: Vec<ThreadRow>,
    pub timeline: Vec<TimeRow>,
    pub classes: Vec<ClassRow>,
    pub counters: Vec<(String, u64)>,
    /// As they are; of a dump and of an older library as they were when the timeline ends.
    pub large: Large,
    /// Rows that changed each time they were looked at.
    pub torn_count: u64,
}

/// The header, or why it is none that we can read.
pub fn published(memory: &dyn Memory, address: u64) -> Result<Published, String> {
    let mut bytes = [0; size_of::<Published>()];
    // Its own size may be less than ours; it lies in a page of data that is longer, or the read is cut.
    let mut head = [0; 16];
    memory.read(address, &mut head).map_err(|error| crate::system::error_text(&error))?;
    let size = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
    let magic = u64::from_le_bytes(head[..8].try_into().unwrap_or_default());
    let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    if magic != MAGIC {
        return Err("it publishes nothing yet; it has allocated too little since it started".to_owned());
    }
    if version != VERSION {
        return Err(format!("it publishes version {version}; this command reads {VERSION}"));
    }
    let length = size.min(bytes.len());
    memory.read(address, &mut bytes[..length]).map_err(|error| crate::system::error_text(&error))?;
    Ok(Published::from_bytes(&bytes[..length]))
}

impl Tables {
    /// Once more where rows of stacks and threads moved meanwhile.
    pub fn read(memory: &dyn Memory, address: u64) -> Result<Tables, String> {
        const TRIES: usize = 16;
        let mut tables = Tables::read_once(memory, address)?;
        for _ in 1..TRIES {
            let before = tables.published.renewed;
            match published(memory, address) {
                Ok(after) if after.renewed != before || before % 2 == 1 => {
                    tables = Tables::read_once(memory, address)?;
                }
                _ => break, // it may have ended since
            }
        }
        Ok(tables)
    }

    fn read_once(memory: &dyn Memory, address: u64) -> Result<Tables, String> {
        let published = published(memory, address)?;
        let mut torn_count = 0;
        let stacks =
            rows_with_sequence(memory, &published.stacks, |row: &StackRow| row.sequence, &mut torn_count)?;
        let live = live_read(memory, &published, &mut torn_count)?;
        let threads =
            rows_with_sequence(memory, &published.threads, |row: &ThreadRow| row.sequence, &mut torn_count)?;
        let timeline = timeline_read(memory, address, &published)?;
        let large = large_read(memory, &published).or_else(|| timeline.last().map(TimeRow::large));
        Ok(Tables {
            frames: rows(memory, &published.frames)?,
            large: large.unwrap_or_default(),
            timeline,
            classes: rows(memory, &published.classes)?,
            counters: counters_read(memory, &published)?,
            stacks,
            live,
            threads,
            published,
            torn_count,
        })
    }
}

impl Tables {
    /// CLOCK_MONOTONIC when what was recorded ends: now, or, after its end, with the last that was seen.
    pub fn end_ns(&self, now_ns: u64) -> u64 {
        if self.published.is_on != 0 {
            return now_ns;
        }
        let stacks = self.stacks.iter().map(|row| row.last_ns);
        let threads = self.threads.iter().map(|row| row.last_ns);
        let times = self.timeline.iter().map(|row| row.time_ns);
        stacks.chain(threads).chain(times).max().unwrap_or(now_ns).min(now_ns)
    }

    /// As of a recording that began at `start_ns` and saw nothing: what the tables hold is of an earlier one.
    pub fn empty(&mut self, start_ns: u64, start_realtime_ns: u64) {
        self.stacks.clear();
        self.frames.clear();
        self.live.clear();
        self.threads.clear();
        self.timeline.clear();
        self.torn_count = 0;
        let published = &mut self.published;
        published.is_on = 1;
        (published.start_ns, published.start_realtime_ns) = (start_ns, start_realtime_ns);
        (published.samples, published.lost_live) = (0, 0);
        (published.lost_stacks, published.lost_threads) = (0, 0);
    }
}

impl TimeRow {
    pub fn large(&self) -> Large {
        Large { bytes: self.large_bytes, count: self.large_count }
    }
}

/// What large blocks hold, at any time; None: the library does not say.
pub fn large_read(memory: &dyn Memory, published: &Published) -> Option<Large> {
    let word = |address: u64| {
        let mut bytes = [0; 8];
        memory.read(address, &mut bytes).ok()?;
        Some(u64::try_from(i64::from_le_bytes(bytes)).unwrap_or(0))
    };
    if published.large_bytes_address == 0 {
        return None;
    }
    Some(Large { bytes: word(published.large_bytes_address)?, count: word(published.large_count_address)? })
}

/// The live samples alone: what a timeline by site needs at each tick.
pub fn live_read(memory: &dyn Memory, published: &Published, torn: &mut u64) -> Result<Vec<LiveRow>, String> {
    let mut live = rows_with_sequence(memory, &published.live, |row: &LiveRow| row.sequence, torn)?;
    live.retain(|row| row.state == 1 && row.sequence != 0);
    Ok(live)
}

/// What was found wrong with guarded blocks, each with the block's row.
pub fn guards_read(memory: &dyn Memory, address: u64) -> Result<Vec<(GuardFault, Option<GuardRow>)>, String> {
    let published = published(memory, address)?;
    let torn = &mut 0;
    let guards = rows_with_sequence(memory, &published.guards, |row: &GuardRow| row.sequence, torn)?;
    let faults = rows_with_sequence(memory, &published.guard_faults, |row: &GuardFault| row.sequence, torn)?;
    let with_row = |fault: GuardFault| (fault, row_of(&fault, guards.get(fault.row as usize)));
    Ok(faults.into_iter().filter(|fault| fault.sequence != 0).map(with_row).collect())
}

/// The block's row as it was at the fault. An older library kept none: as it is `now`, unless another block has the place.
fn row_of(fault: &GuardFault, now: Option<&GuardRow>) -> Option<GuardRow> {
    const LIVE: u32 = 2;
    if fault.was.sequence != 0 {
        return Some(fault.was);
    }
    let mut row = *now.filter(|row| row.sequence != 0 && row.alloc.time_ns <= fault.at.time_ns)?;
    if row.free.tid != 0 && row.free.time_ns > fault.at.time_ns {
        (row.state, row.free) = (LIVE, GuardEvent::zero());
    }
    Some(row)
}

fn table_bytes(
    memory: &dyn Memory,
    table: &Table,
    count_max: u64,
    bytes_least: u64,
) -> Result<Vec<u8>, String> {
    let count = table.used.min(table.capacity);
    if table.address == 0 || count == 0 {
        return Ok(Vec::new());
    }
    let can_be = count <= count_max && table.row_bytes >= bytes_least;
    let bytes = count.checked_mul(table.row_bytes).filter(|bytes| *bytes <= TABLE_BYTES_MAX && can_be);
    let bytes =
        bytes.ok_or_else(|| format!("a table of {count} rows of {} bytes cannot be", table.row_bytes))?;
    let mut content = vec![0; bytes as usize];
    memory.read(table.address, &mut content).map_err(|error| crate::system::error_text(&error))?;
    Ok(content)
}

fn rows<R: Row>(memory: &dyn Memory, table: &Table) -> Result<Vec<R>, String> {
    let content = table_bytes(memory, table, R::COUNT_MAX, R::BYTES_LEAST)?;
    Ok(content.chunks_exact(table.row_bytes.max(1) as usize).map(R::from_bytes).collect())
}

/// The table twice: a row is of one moment if its sequence was even in the first and is unchanged in the second.
fn rows_with_sequence<R: Row>(
    memory: &dyn Memory,
    table: &Table,
    sequence: impl Fn(&R) -> u32,
    torn_count: &mut u64,
) -> Result<Vec<R>, String> {
    const TRIES: usize = 16;
    let first: Vec<R> = rows(memory, table)?;
    let second = table_bytes(memory, table, R::COUNT_MAX, R::BYTES_LEAST)?;
    let step = table.row_bytes.max(4) as usize;
    let steady = |a: u32, b: u32| a == b && a % 2 == 0;
    let mut taken = Vec::with_capacity(first.len());
    for (at, row) in first.into_iter().enumerate() {
        let again = second
            .get(at * step..at * step + 4)
            .map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        if steady(sequence(&row), again) {
            taken.push(row);
            continue;
        }
        let address = table.address.wrapping_add((at * step) as u64);
        let mut found = None;
        for _ in 0..TRIES {
            let mut bytes = vec![0; step];
            let mut after = [0; 4];
            if memory.read(address, &mut bytes).and_then(|()| memory.read(address, &mut after)).is_err() {
                break;
            }
            let row = R::from_bytes(&bytes);
            if steady(sequence(&row), u32::from_le_bytes(after)) {
                found = Some(row);
                break;
            }
        }
        // Its place stays, so that indices hold.
        *torn_count += u64::from(found.is_none());
        taken.push(found.unwrap_or_else(R::zero));
    }
    Ok(taken)
}

fn timeline_read(memory: &dyn Memory, address: u64, published: &Published) -> Result<Vec<TimeRow>, String> {
    let offset = std::mem::offset_of!(Published, timeline_sequence) as u64;
    let mut taken: Vec<TimeRow> = Vec::new();
    for _ in 0..4 {
        let before = self::published(memory, address)?;
        taken = rows(memory, &before.timeline)?;
        let mut after = [0; 4];
        memory
            .read(address.wrapping_add(offset), &mut after)
            .map_err(|error| crate::system::error_text(&error))?;
        if before.timeline_sequence % 2 == 0 && before.timeline_sequence == u32::from_le_bytes(after) {
            break;
        }
    }
    taken.retain(|row| row.time_ns >= published.start_ns);
    taken.sort_by_key(|row| row.time_ns);
    Ok(taken)
}

fn counters_read(memory: &dyn Memory, published: &Published) -> Result<Vec<(String, u64)>, String> {
    let names = table_bytes(memory, &published.counter_names, COUNTERS_MAX, COUNTER_BYTES_LEAST)?;
    let values: Vec<u64> = rows(memory, &published.counters)?;
    let step = published.counter_names.row_bytes.max(1) as usize;
    let name = |bytes: &[u8]| text_of(bytes);
    Ok(names.chunks_exact(step).map(name).zip(values).collect())
}

/// A text that ends at its first zero byte.
pub fn text_of(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command as Run;

    #[test]
    fn a_fault_is_of_the_block_that_was_there() {
        let event = |tid, time_ns| GuardEvent { tid, time_ns, ..GuardEvent::zero() };
        let mut fault = GuardFault { at: event(1, 100), ..GuardFault::zero() };
        let mut now =
            GuardRow { sequence: 4, state: 3, alloc: event(1, 50), free: event(2, 90), ..GuardRow::zero() };
        let seen = |fault: &GuardFault, now: &GuardRow| {
            row_of(fault, Some(now)).map(|row| (row.state, row.alloc.time_ns, row.free.tid))
        };
        assert_eq!(seen(&fault, &now), Some((3, 50, 2)));
        now.free.time_ns = 110; // after the fault
        assert_eq!(seen(&fault, &now), Some((2, 50, 0)));
        now.alloc.time_ns = 105; // the place's next block
        assert_eq!(seen(&fault, &now), None);
        assert!(row_of(&fault, None).is_none() && row_of(&fault, Some(&GuardRow::zero())).is_none());
        fault.was = GuardRow { sequence: 2, state: 2, alloc: event(1, 40), ..GuardRow::zero() };
        assert_eq!(seen(&fault, &now), Some((2, 40, 0)));
    }

    /// The compiler's word on the header against ours.
    #[test]
    fn the_structs_are_the_headers() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let folder = std::env::temp_dir().join(format!("hakmem-layout-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let source = "#include \"watch/published.h\"\n#include <stddef.h>\n#include <stdio.h>\n\
            #define AT(s, f) printf(\"%zu \", offsetof(struct s, f))\n#define SIZE(s) printf(\"%zu \", sizeof(struct s))\n\
            int main(void) { SIZE(hak_table); SIZE(hak_stack_row); SIZE(hak_live_row); SIZE(hak_thread_row);\n\
            SIZE(hak_time_row); SIZE(hak_class_row); SIZE(hak_geometry); SIZE(hak_control); SIZE(hak_published);\n\
            SIZE(hak_guard_event); SIZE(hak_guard_row); SIZE(hak_guard_fault); AT(hak_guard_row, free); AT(hak_guard_fault, was);\n\
            AT(hak_stack_row, large_bytes); AT(hak_stack_row, age_count); AT(hak_live_row, weight); AT(hak_live_row, from_bytes); AT(hak_live_row, tid);\n\
            AT(hak_thread_row, alloc_bytes); AT(hak_published, geometry); AT(hak_published, control); AT(hak_published, samples);\n\
            AT(hak_published, stack_repeats); AT(hak_published, held_max_ns);\n\
            AT(hak_published, large_bytes_address); AT(hak_published, large_count_address); AT(hak_published, renewed);\n\
            AT(hak_published, counters); AT(hak_geometry, class_count); AT(hak_control, path);\n\
            printf(\"%d %d\", HAK_COUNT_UNIT, HAK_AGE_COUNT); return 0; }\n";
        std::fs::write(folder.join("l.c"), source).unwrap();
        let built = Run::new("cc")
            .args(["-o", "l", "l.c", "-I"])
            .arg(format!("{root}/src"))
            .current_dir(&folder)
            .status();
        assert!(built.unwrap().success());
        let output = Run::new(folder.join("l")).output().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let theirs = String::from_utf8(output.stdout).unwrap();
        use std::mem::offset_of;
        let ours = [
            size_of::<Table>(),
            size_of::<StackRow>(),
            size_of::<LiveRow>(),
            size_of::<ThreadRow>(),
            size_of::<TimeRow>(),
            size_of::<ClassRow>(),
            size_of::<Geometry>(),
            size_of::<Control>(),
            size_of::<Published>(),
            size_of::<GuardEvent>(),
            size_of::<GuardRow>(),
            size_of::<GuardFault>(),
            offset_of!(GuardRow, free),
            offset_of!(GuardFault, was),
            offset_of!(StackRow, large_bytes),
            offset_of!(StackRow, age_count),
            offset_of!(LiveRow, weight),
            offset_of!(LiveRow, from_bytes),
            offset_of!(LiveRow, tid),
            offset_of!(ThreadRow, alloc_bytes),
            offset_of!(Published, geometry),
            offset_of!(Published, control),
            offset_of!(Published, samples),
            offset_of!(Published, stack_repeats),
            offset_of!(Published, held_max_ns),
            offset_of!(Published, large_bytes_address),
            offset_of!(Published, large_count_address),
            offset_of!(Published, renewed),
            offset_of!(Published, counters),
            offset_of!(Geometry, class_count),
            offset_of!(Control, path),
            COUNT_UNIT as usize,
            AGE_COUNT,
        ];
        let theirs: Vec<usize> = theirs.split_whitespace().map(|number| number.parse().unwrap()).collect();
        // Of the sizes in front theirs may be more: what was appended is not ours to know.
        const SIZES: usize = 12;
        assert!(
            theirs[..SIZES].iter().zip(&ours).all(|(theirs, ours)| theirs >= ours),
            "{theirs:?} {ours:?}"
        );
        assert_eq!(theirs[SIZES..], ours[SIZES..]);
    }
}
