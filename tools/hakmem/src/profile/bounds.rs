//! bounds.rs - what a profile may hold: a made-up file of a few megabytes must neither fill the memory nor take for ever.
//!
//! Rule: lists are bounded while they are read, by the memory that all of one file's take together: three bytes of JSON
//!       can be a row of five hundred. What is walked again and again is bounded by its count (Profile::check).

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::{self, Formatter};
use std::marker::PhantomData;

/// Eight times what the library has room for.
pub const STACKS_MAX: usize = 1 << 17;
/// What the library records of a stack.
pub const LOCATIONS_MAX: usize = 64;
/// A return address lies in its function, and in what was inlined there.
pub const LINES_MAX: usize = 256;
/// Of all stacks, inlined ones included: a hundred thousand stacks have a third of them.
pub const FRAMES_MAX: usize = 1 << 25;
/// Twenty times what the library has, pools included.
pub const CLASSES_MAX: usize = 4096;
/// A hundred thousand stacks take half of it.
const LIST_BYTES_MAX: usize = 512 << 20;
const MAP_ROWS_MAX: usize = 4096;

thread_local! {
    static LEFT: Cell<usize> = const { Cell::new(LIST_BYTES_MAX) };
}

/// A file begins.
pub fn renew() {
    LEFT.set(LIST_BYTES_MAX);
}

struct Bounded<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Bounded<Vec<T>> {
    type Value = Vec<T>;

    fn expecting(&self, formatter: &mut Formatter) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut rows: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(row) = rows.next_element()? {
            let left = LEFT.get().checked_sub(size_of::<T>());
            LEFT.set(left.ok_or_else(|| A::Error::custom("more rows than a profile may have"))?);
            list.push(row);
        }
        Ok(list)
    }
}

impl<'de> Visitor<'de> for Bounded<BTreeMap<String, u64>> {
    type Value = BTreeMap<String, u64>;

    fn expecting(&self, formatter: &mut Formatter) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut rows: A) -> Result<Self::Value, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((name, value)) = rows.next_entry()? {
            map.insert(name, value);
            if map.len() > MAP_ROWS_MAX {
                return Err(A::Error::custom("more counters than a profile may have"));
            }
        }
        Ok(map)
    }
}

pub fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    from.deserialize_seq(Bounded::<Vec<T>>(PhantomData))
}

pub fn map<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    from.deserialize_map(Bounded::<BTreeMap<String, u64>>(PhantomData))
}
