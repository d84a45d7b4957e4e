//! pages.rs - what lives on each page of the slabs, counted from outside by the bits that are the allocator's truth.
//!
//! Source:  hak_geometry (src/watch/published.h). Nothing is stopped: a slab that is cut or released meanwhile is
//!          counted as it is found, and what makes no sense (a class beyond the table, more lines than a chunk has) is
//!          left out.
//! Words:   a page is sparse if it is resident and its live blocks fill less than a quarter of it, but some; what they
//!          do not fill, they pin.
//! Cost:    three system calls a chunk of 4 MiB, and 8 bytes of pagemap a page.

use super::memory::Memory;
use super::raw::{ClassRow, Geometry, Published};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::FileExt;

const CHUNK_GRANULES: u64 = 64;
const CHUNK_BYTES: u32 = 4 << 20;
const LINE_BYTES: u64 = 64;
const HEADER_BYTES: usize = 64;
const SPARSE_SHARE: u64 = 4;
/// What the largest window has: 16 TiB.
const CHUNKS_MAX: u64 = 1 << 22;
/// Of all that is kept of pages, 1 GiB: those of 1 TiB of slabs where a page has 4 KiB. Further ones are counted, not kept.
const PAGES_KEPT_MAX: usize = 1 << 28;

/// A size class, as it stands now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClassCount {
    pub block_bytes: u64,
    pub slab_count: u64,
    pub capacity_count: u64,
    pub live_count: u64,
    pub resident_bytes: u64,
    pub sparse_page_count: u64,
    pub sparse_bytes: u64,
}

pub struct Census {
    pub classes: Vec<ClassCount>, // by the library's class index
    page_shift: u32,
    window_base: u64,
    chunks: HashMap<u64, Vec<u32>>, // live bytes of each page; ABSENT: not resident
}

const ABSENT: u32 = u32::MAX;

/// Which pages are resident: by the kernel's pagemap of a process, or, without it, those that the allocator did not
/// return.
pub enum Residence {
    Pagemap(fs::File),
    AsReturned,
}

impl Residence {
    pub fn of_process(pid: u32) -> Residence {
        fs::File::open(format!("/proc/{pid}/pagemap")).map_or(Residence::AsReturned, Residence::Pagemap)
    }
}

impl Census {
    /// Of nothing.
    pub fn empty(published: &Published, rows: &[ClassRow]) -> Census {
        Census {
            classes: rows
                .iter()
                .map(|row| ClassCount { block_bytes: u64::from(row.block_bytes), ..ClassCount::default() })
                .collect(),
            page_shift: published.geometry.page_shift,
            window_base: published.geometry.window_base,
            chunks: HashMap::new(),
        }
    }

    /// Or, in one line, what cannot be: where chunks shared their headers, a few bytes would be a heap of 16 TiB.
    pub fn take(
        memory: &dyn Memory,
        published: &Published,
        rows: &[ClassRow],
        residence: &Residence,
    ) -> Result<Census, String> {
        let geometry = &published.geometry;
        let mut census = Census::empty(published, rows);
        let is_known = (10..=16).contains(&geometry.page_shift)
            && geometry.granule_shift == 16
            && geometry.unit_shift < 32
            && geometry.meta != 0;
        let mut top = [0; 8];
        if !is_known || memory.read(geometry.chunk_top_address, &mut top).is_err() {
            return Ok(census);
        }
        let chunks = 0..u64::from_le_bytes(top).min(CHUNKS_MAX);
        if !chunks.is_empty() && !are_apart(geometry) {
            return Err("its chunks lie one on another".to_owned());
        }
        let mut slabs = Slabs { memory, published, rows, residence };
        chunks.for_each(|chunk| _ = slabs.chunk_count(chunk, &mut census));
        Ok(census)
    }

    /// How many bytes live on the page of an address, if that page belongs to a slab and is resident.
    pub fn page_live_bytes(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.window_base)?;
        let pages = self.chunks.get(&(offset >> 22))?;
        let live = *pages.get(((offset & ((1 << 22) - 1)) >> self.page_shift) as usize)?;
        (live != ABSENT).then_some(u64::from(live))
    }

    pub fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    pub fn is_sparse(&self, live_bytes: u64) -> bool {
        live_bytes > 0 && live_bytes < self.page_bytes() / SPARSE_SHARE
    }

    pub fn sparse_bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.sparse_bytes).sum()
    }
}

/// Each chunk's struct and metadata has its own place.
fn are_apart(geometry: &Geometry) -> bool {
    let struct_bytes = u64::from(geometry.chunk_struct_bytes);
    let headers_bytes = CHUNK_GRANULES * u64::from(geometry.slab_struct_bytes);
    let metas_bytes = u128::from(geometry.meta_bytes) << geometry.unit_shift;
    u64::from(geometry.chunk_slabs_offset) + 8 <= struct_bytes
        && geometry.slab_struct_bytes as usize >= HEADER_BYTES
        && u64::from(geometry.row_head_bytes) <= LINE_BYTES
        && geometry.meta_bytes >= headers_bytes
        && geometry.structs_bytes >= struct_bytes << geometry.unit_shift
        && u128::from(geometry.unit_meta_bytes) >= u128::from(geometry.structs_bytes) + metas_bytes
}

/// What we need of a slab's header.
struct Slab {
    granule: u64,
    class_index: usize,
    class: ClassRow,
    owner_line: u16,
    remote_line: u16,
    returned: u64,
    returned_shift: u32,
}

/// Its bits as they stood, and where in it the first block begins.
struct Row<'a> {
    lead: u64,
    words: &'a [u8], // the owner's, and the strangers' behind them
}

impl Slab {
    /// By the head of its row, which begins with the first block's address; one that makes no sense is none.
    fn lead(&self, head: &[u8], start: u64) -> u64 {
        let first = head.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(start, u64::from_le_bytes);
        let left = u64::from(self.class.slab_bytes)
            - u64::from(self.class.capacity) * u64::from(self.class.block_bytes);
        let lead = first.wrapping_sub(start);
        if lead <= left { lead } else { 0 }
    }
}

struct Slabs<'a> {
    memory: &'a dyn Memory,
    published: &'a Published,
    rows: &'a [ClassRow],
    residence: &'a Residence,
}

impl Slabs<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read(address, &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// None: it has no slabs, or they cannot be read.
    fn chunk_count(&mut self, chunk: u64, census: &mut Census) -> Option<()> {
        let geometry = &self.published.geometry;
        let unit =
            geometry.meta.wrapping_add((chunk >> geometry.unit_shift).wrapping_mul(geometry.unit_meta_bytes));
        let within = chunk & ((1 << geometry.unit_shift) - 1);
        let record = unit.wrapping_add(within * u64::from(geometry.chunk_struct_bytes));
        let slabs = self.word(record.wrapping_add(u64::from(geometry.chunk_slabs_offset)))?;
        let meta =
            unit.wrapping_add(geometry.structs_bytes).wrapping_add(within.wrapping_mul(geometry.meta_bytes));
        let granules: Vec<u64> = (0..CHUNK_GRANULES).filter(|granule| slabs >> granule & 1 == 1).collect();
        let headers = granules.iter().map(|granule| {
            let address = meta.wrapping_add(granule * u64::from(geometry.slab_struct_bytes));
            (address, HEADER_BYTES)
        });
        let headers = self.memory.read_pieces(&headers.collect::<Vec<_>>())?;
        let slabs = granules.iter().zip(headers.chunks_exact(HEADER_BYTES));
        let slabs: Vec<Slab> = slabs.filter_map(|(granule, header)| self.slab(*granule, header)).collect();
        if slabs.is_empty() {
            return None;
        }
        let head_bytes = geometry.row_head_bytes as usize;
        let rows = slabs.iter().flat_map(|slab| {
            let line = |line: u16| meta.wrapping_add(u64::from(line) * LINE_BYTES);
            let bytes = slab.class.word_count as usize * 8;
            [(line(slab.owner_line), head_bytes + bytes), (line(slab.remote_line), bytes)]
        });
        let rows = self.memory.read_pieces(&rows.collect::<Vec<_>>())?;

        let chunk_start = geometry.window_base.wrapping_add(chunk << 22);
        let resident = self.resident_pages(chunk_start);
        let mut pages = vec![ABSENT; 1 << (22 - geometry.page_shift)];
        let mut rest = rows.as_slice();
        for slab in &slabs {
            let (row, after) = rest.split_at(head_bytes + slab.class.word_count as usize * 16);
            rest = after;
            let (head, words) = row.split_at(head_bytes);
            let lead = slab.lead(head, chunk_start.wrapping_add(slab.granule << 16));
            self.slab_count(slab, &Row { lead, words }, resident.as_deref(), &mut pages, census);
        }
        if (census.chunks.len() + 1) * pages.len() <= PAGES_KEPT_MAX {
            census.chunks.insert(chunk, pages);
        }
        Some(())
    }

    /// What a slab's header says, if it makes sense.
    fn slab(&self, granule: u64, header: &[u8]) -> Option<Slab> {
        let geometry = &self.published.geometry;
        let byte = |offset: u32| header.get(offset as usize).copied().unwrap_or(0);
        let pair = |offset: u32| u16::from_le_bytes([byte(offset), byte(offset + 1)]);
        let class_index = usize::from(byte(geometry.slab_class_offset));
        let class = *self.rows.get(class_index)?;
        let blocks_bytes = u64::from(class.capacity) * u64::from(class.block_bytes);
        let is_sane = blocks_bytes > 0
            && class.word_count <= 64
            && class.capacity <= class.word_count * 64
            && blocks_bytes <= u64::from(class.slab_bytes)
            && class.slab_bytes <= CHUNK_BYTES;
        // A class may have pools (blocks of the same size, kept apart by lifetime): samples name the class.
        let class_index = self.rows.iter().position(|row| row.block_bytes == class.block_bytes)?;
        let returned_at = geometry.slab_returned_offset as usize;
        is_sane.then_some(Slab {
            granule,
            class_index,
            class,
            owner_line: pair(geometry.slab_owner_line_offset),
            remote_line: pair(geometry.slab_remote_line_offset),
            returned: u64::from_le_bytes(header.get(returned_at..returned_at + 8)?.try_into().ok()?),
            returned_shift: u32::from(byte(geometry.slab_page_shift_offset)),
        })
    }

    /// Of the chunk at `start`, page by page; None: only the allocator can say.
    fn resident_pages(&self, start: u64) -> Option<Vec<bool>> {
        let Residence::Pagemap(file) = self.residence else { return None };
        let shift = self.published.geometry.page_shift;
        let mut entries = vec![0; 8 << (22 - shift)];
        file.read_exact_at(&mut entries, (start >> shift) * 8).ok()?;
        // The top byte of an entry: bit 7 says present.
        Some(entries.chunks_exact(8).map(|entry| entry[7] & 0x80 != 0).collect())
    }

    fn slab_count(
        &self,
        slab: &Slab,
        row: &Row,
        resident: Option<&[bool]>,
        pages: &mut [u32],
        census: &mut Census,
    ) -> Option<()> {
        let geometry = &self.published.geometry;
        let (granule, class) = (slab.granule, &slab.class);
        let (returned, returned_shift) = (slab.returned, slab.returned_shift);
        let count = &mut census.classes[slab.class_index];
        let words =
            row.words.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let words: Vec<u64> = words.collect();
        let (owner, remote) = words.split_at(class.word_count as usize);

        let page_bytes = 1_u64 << geometry.page_shift;
        let first_page = (granule << 16 >> geometry.page_shift) as usize;
        let page_count = (u64::from(class.slab_bytes) >> geometry.page_shift) as usize;
        let own = pages.get_mut(first_page..first_page + page_count)?;
        own.fill(0);
        let block_bytes = u64::from(class.block_bytes);
        for block in 0..class.capacity {
            let (word, bit) = ((block / 64) as usize, block % 64);
            if (owner[word] | remote[word]) >> bit & 1 == 1 {
                continue;
            }
            count.live_count += 1;
            let mut from = row.lead + u64::from(block) * block_bytes;
            let end = from + block_bytes;
            while from < end {
                let page = from >> geometry.page_shift;
                let until = end.min((page + 1) * page_bytes);
                if let Some(live) = own.get_mut(page as usize) {
                    *live += (until - from) as u32;
                }
                from = until;
            }
        }
        count.slab_count += 1;
        count.capacity_count += u64::from(class.capacity);
        for (at, live) in own.iter_mut().enumerate() {
            let is_resident = match resident {
                Some(resident) => resident.get(first_page + at).copied().unwrap_or(false),
                None => {
                    let bit = (at as u64) << geometry.page_shift >> returned_shift.max(geometry.page_shift);
                    bit >= 64 || returned >> bit & 1 == 0
                }
            };
            if !is_resident {
                *live = ABSENT;
                continue;
            }
            count.resident_bytes += page_bytes;
            if *live > 0 && u64::from(*live) < page_bytes / SPARSE_SHARE {
                count.sparse_page_count += 1;
                count.sparse_bytes += page_bytes - u64::from(*live);
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_begins_where_its_row_says_if_its_blocks_fit_then() {
        let class = ClassRow { reciprocal: 0, block_bytes: 4736, capacity: 221, word_count: 4, slab_bytes: 1 << 20 };
        let slab = Slab {
            granule: 0,
            class_index: 1,
            class,
            owner_line: 0,
            remote_line: 0,
            returned: 0,
            returned_shift: 14,
        };
        let start = 0x7000_0010_0000_u64;
        let lead = |first: u64| slab.lead(&first.to_le_bytes(), start);
        let left = (1 << 20) - 221 * 4736;
        assert_eq!(lead(start), 0);
        assert_eq!(lead(start + 1472), 1472);
        assert_eq!(lead(start + left), left);
        assert_eq!(lead(start + left + 1), 0);
        assert_eq!(lead(start - 64), 0);
        assert_eq!(slab.lead(&[], start), 0);
    }
}
