//! file.rs - a policy file's text: parsed as docs/policy.md has it, and written so that the library believes it.
//!
//! Invariant: parse(write(policy)) == policy, and what the library refuses is refused here (src/learn/policy_text.c).

use super::{
    Change, FILE_BYTES_MAX, Filled, Gain, Kind, LINE_BYTES_MAX, Policy, ROWS_MAX, Rating, SITES_MAX, Site,
    Stage, Standing, VERSION,
};
use crate::options::{self, OPTIONS, STRATEGIES, Value};
use std::fmt::Write;

/// What the library has room for (src/learn/policy_text.c): what is beyond it is refused there.
const NAME_BYTES_MAX: usize = 64;
const SHORT_NAME_BYTES_MAX: usize = 23;
pub const COUNT_MAX: u64 = u32::MAX as u64;
const ELO_MAX: u64 = 100_000;
const GAIN_MAX: u64 = 100_000_000;
const NUMBER_MAX: u64 = 1_000_000_000_000_000_000;
const CLASS_MAX: u64 = u16::MAX as u64;
const HALVINGS_MAX: u64 = 3;
const FELL_MAX: u64 = 8;
const DEAR_MAX: u64 = 6;
const FILLED_ROWS_MAX: usize = 128;
const FILLED_BLOCK_BYTES_MAX: u64 = 32768 + 128;
const FILLED_SLABS_MAX: u64 = 1 << 20;
pub const SAMPLES_MAX: u64 = 1 << 48;

pub fn parse(bytes: &[u8]) -> Result<Policy, String> {
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("larger than {FILE_BYTES_MAX} bytes: no policy file is"));
    }
    if !bytes.is_empty() && !bytes.starts_with(b"hakmem-policy ") {
        return Err("line 1: not a policy file: it does not begin with 'hakmem-policy'".to_owned());
    }
    if bytes.is_empty() {
        return Err("empty".to_owned());
    }
    let mut reader = Reader::default();
    let mut at = 0;
    for (number, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let wrong = |reason: String| format!("line {}: {reason}", number + 1);
        let whole =
            line.strip_suffix(b"\n").ok_or_else(|| wrong("it does not end: the file was cut".to_owned()))?;
        if line.len() > LINE_BYTES_MAX {
            return Err(wrong(format!("longer than {LINE_BYTES_MAX} bytes")));
        }
        if reader.has_ended {
            return Err(wrong("something follows the end".to_owned()));
        }
        // What is no text becomes a character that no field may have; in a comment it does no harm.
        let whole = String::from_utf8_lossy(whole);
        reader.line(number, &whole, sum(&bytes[..at])).map_err(wrong)?;
        at += line.len();
    }
    reader.finish()
}

/// FNV-1a of 64 bits.
fn sum(bytes: &[u8]) -> impl Fn() -> u64 + use<'_> {
    move || {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

#[derive(Default)]
struct Reader {
    program: Option<(String, String)>,
    library: Option<String>,
    runs: Option<u64>,
    stage: Option<Stage>,
    strategy: Option<String>,
    gain: Option<Gain>,
    noise: Option<(u64, u64)>,
    spare: Option<(u64, u64)>,
    fell: Option<u64>,
    dear: Option<u64>,
    filled: Vec<Filled>,
    knobs: Vec<(String, u64)>,
    ratings: Vec<Rating>,
    history: Vec<Change>,
    sites: Vec<Site>,
    has_ended: bool,
}

impl Reader {
    fn line(&mut self, number: usize, line: &str, sum_before: impl Fn() -> u64) -> Result<(), String> {
        let mut fields: Vec<&str> = line.split(' ').collect();
        let keyword = fields.remove(0);
        match (number, keyword) {
            (0, "hakmem-policy") => return self.version(&fields),
            (1, "program") => {
                let [build_id, name] = exactly(&fields)?;
                if !(8..=64).contains(&build_id.len()) || !is_hex(build_id) {
                    return Err("the program's build-id is 8 to 64 hexadecimal digits".to_owned());
                }
                self.program = Some((build_id.to_owned(), name_of(name, NAME_BYTES_MAX)?));
                return Ok(());
            }
            (1, _) => return Err("the second line names the program".to_owned()),
            _ if line.starts_with('#') => return Ok(()),
            _ => {}
        }
        match keyword {
            "library" => {
                once(&mut self.library, keyword, name_of(exactly::<1>(&fields)?[0], SHORT_NAME_BYTES_MAX)?)
            }
            "runs" => {
                let runs = number_of(exactly::<1>(&fields)?[0], COUNT_MAX)?;
                if runs == 0 {
                    return Err("no run stands behind it".to_owned());
                }
                once(&mut self.runs, keyword, runs)
            }
            "stage" => {
                let stage = stage_of(exactly::<1>(&fields)?[0])?;
                if stage == Stage::Off {
                    return Err("a run does not end in the stage off".to_owned());
                }
                once(&mut self.stage, keyword, stage)
            }
            "strategy" => {
                once(&mut self.strategy, keyword, name_of(exactly::<1>(&fields)?[0], SHORT_NAME_BYTES_MAX)?)
            }
            "gain" => {
                let [millionths, error, duels] = exactly(&fields)?;
                let gain = Gain {
                    millionths: signed_of(millionths, GAIN_MAX)?,
                    error: number_of(error, GAIN_MAX)?,
                    duels: number_of(duels, COUNT_MAX)?,
                };
                once(&mut self.gain, keyword, gain)
            }
            "noise" => {
                let [deviation, duels] = exactly(&fields)?;
                once(
                    &mut self.noise,
                    keyword,
                    (number_of(deviation, GAIN_MAX)?, number_of(duels, COUNT_MAX)?),
                )
            }
            "spare" => {
                let [halvings, runs] = exactly(&fields)?;
                let (halvings, runs) = (number_of(halvings, HALVINGS_MAX)?, number_of(runs, COUNT_MAX)?);
                if runs == 0 {
                    return Err("no run stands behind it".to_owned());
                }
                once(&mut self.spare, keyword, (halvings, runs))
            }
            "fell" => once(&mut self.fell, keyword, times_of(exactly::<1>(&fields)?[0], FELL_MAX)?),
            "dear" => once(&mut self.dear, keyword, times_of(exactly::<1>(&fields)?[0], DEAR_MAX)?),
            "filled" => self.filled(&fields),
            "knob" => self.knob(&fields),
            "rating" => self.rating(&fields),
            "history" => self.change(&fields),
            "site" => self.site(&fields),
            "end" => {
                let [digits] = exactly(&fields)?;
                if digits.len() != 16 || !is_hex(digits) {
                    return Err("the end is 16 hexadecimal digits".to_owned());
                }
                if u64::from_str_radix(digits, 16) != Ok(sum_before()) {
                    return Err("the sum over the file is another: it is damaged".to_owned());
                }
                self.has_ended = true;
                Ok(())
            }
            other => Err(format!("version {VERSION} has no keyword {}", shown(other))),
        }
    }

    fn version(&mut self, fields: &[&str]) -> Result<(), String> {
        let version = number_of(exactly::<1>(fields)?[0], COUNT_MAX)?;
        match version {
            VERSION => Ok(()),
            other => Err(format!("it has version {other} of the format, this command reads {VERSION}")),
        }
    }

    fn filled(&mut self, fields: &[&str]) -> Result<(), String> {
        let [block_bytes, slabs, last] = exactly(fields)?;
        let block_bytes = number_of(block_bytes, FILLED_BLOCK_BYTES_MAX)?;
        if self.filled.iter().any(|other| other.block_bytes == block_bytes) {
            return Err(format!("filled {block_bytes} is there twice"));
        }
        let (slabs, last) = (number_of(slabs, FILLED_SLABS_MAX)?, number_of(last, FILLED_SLABS_MAX)?);
        self.filled.push(Filled { block_bytes, slabs, last });
        at_most(self.filled.len(), FILLED_ROWS_MAX, "classes that are filled")
    }

    fn knob(&mut self, fields: &[&str]) -> Result<(), String> {
        let [name, value] = exactly(fields)?;
        let value = number_of(value, COUNT_MAX)?;
        // A knob is an option that some strategy turns.
        let is_knob = STRATEGIES.iter().any(|(_, _, knobs)| knobs.iter().any(|(knob, _)| *knob == name));
        let row = OPTIONS.iter().find(|row| row.name == name && is_knob);
        match row.map(|row| row.value) {
            Some(Value::Number { min, max, .. }) if (min..=max).contains(&value) => {}
            Some(Value::Number { min, max, .. }) => {
                return Err(format!("{name} is {value}, and may be {min} to {max}"));
            }
            _ => return Err(format!("there is no knob {}", shown(name))),
        }
        if self.knobs.iter().any(|(other, _)| other == name) {
            return Err(format!("knob {name} is there twice"));
        }
        self.knobs.push((name.to_owned(), value));
        at_most(self.knobs.len(), ROWS_MAX, "knobs")
    }

    fn rating(&mut self, fields: &[&str]) -> Result<(), String> {
        let [strategy, elo, error, duels, standing] = exactly(fields)?;
        let strategy = name_of(strategy, SHORT_NAME_BYTES_MAX)?;
        if self.ratings.iter().any(|other| other.strategy == strategy) {
            return Err(format!("rating {strategy} is there twice"));
        }
        let standing = match standing {
            "in" => Standing::In,
            "aside" => Standing::Aside,
            "out" => Standing::Out,
            other => return Err(format!("{} is neither in, aside nor out", shown(other))),
        };
        let (elo, error, duels) =
            (signed_of(elo, ELO_MAX)?, number_of(error, ELO_MAX)?, number_of(duels, COUNT_MAX)?);
        self.ratings.push(Rating { strategy, elo, error, duels, standing });
        at_most(self.ratings.len(), ROWS_MAX, "ratings")
    }

    fn change(&mut self, fields: &[&str]) -> Result<(), String> {
        let [ms, from, to, reason, first, second] = exactly(fields)?;
        self.history.push(Change {
            ms: number_of(ms, NUMBER_MAX)?,
            from: stage_of(from)?,
            to: stage_of(to)?,
            reason: name_of(reason, SHORT_NAME_BYTES_MAX)?,
            numbers: [signed_of(first, NUMBER_MAX)?, signed_of(second, NUMBER_MAX)?],
        });
        at_most(self.history.len(), ROWS_MAX, "changes of stage")
    }

    fn site(&mut self, fields: &[&str]) -> Result<(), String> {
        let [module, offset, height, class, kind, a, b, c] = exactly(fields)?;
        let (kind, most) = match kind {
            "pool" => (Kind::Pool, [1, 1000, SAMPLES_MAX]),
            "keep" => (Kind::Keep, [1024, 600_000, 1024]),
            other => return Err(format!("{} is no kind of knowledge", shown(other))),
        };
        let numbers = [number_of(a, most[0])?, number_of(b, most[1])?, number_of(c, most[2])?];
        let (module, offset) = (hex_of(module)?, hex_of(offset)?);
        if module == 0 {
            return Err("a site has a module".to_owned());
        }
        let (height, class) = (number_of(height, COUNT_MAX)?, number_of(class, CLASS_MAX)?);
        self.sites.push(Site { module, offset, height, class, kind, numbers });
        at_most(self.sites.len(), SITES_MAX, "sites")
    }

    fn finish(self) -> Result<Policy, String> {
        if !self.has_ended {
            return Err("it has no end: the file was cut".to_owned());
        }
        let missing = |keyword: &str| format!("it has no line '{keyword}'");
        let (build_id, program) = self.program.ok_or_else(|| missing("program"))?;
        Ok(Policy {
            build_id,
            program,
            library: self.library.ok_or_else(|| missing("library"))?,
            runs: self.runs.ok_or_else(|| missing("runs"))?,
            stage: self.stage.ok_or_else(|| missing("stage"))?,
            strategy: self.strategy.ok_or_else(|| missing("strategy"))?,
            gain: self.gain,
            noise: self.noise,
            spare: self.spare,
            fell: self.fell.unwrap_or(0),
            dear: self.dear.unwrap_or(0),
            filled: self.filled,
            knobs: self.knobs,
            ratings: self.ratings,
            history: self.history,
            sites: self.sites,
        })
    }
}

/// What makes two sites one.
pub fn key(site: &Site) -> (u64, u64, u64, u64, Kind) {
    (site.module, site.offset, site.height, site.class, site.kind)
}

// --- fields ----------------------------------------------------------------------------------------------

fn exactly<'a, const N: usize>(fields: &[&'a str]) -> Result<[&'a str; N], String> {
    fields.try_into().map_err(|_| format!("{} fields stand where {N} belong", fields.len()))
}

fn once<T>(place: &mut Option<T>, keyword: &str, value: T) -> Result<(), String> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("'{keyword}' is there twice")),
    }
}

fn at_most(count: usize, max: usize, what: &str) -> Result<(), String> {
    if count > max { Err(format!("more than {max} {what}")) } else { Ok(()) }
}

/// A field in a message: nothing in it that a terminal would obey.
fn shown(field: &str) -> String {
    format!("'{}'", field.chars().take(40).collect::<String>().escape_debug())
}

fn number_of(field: &str, max: u64) -> Result<u64, String> {
    let is_plain = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = is_plain && (field == "0" || !field.starts_with('0'));
    let number = is_plain.then(|| field.parse().ok()).flatten().filter(|number| *number <= max);
    number.ok_or_else(|| format!("{} is no whole number up to {max}", shown(field)))
}

/// A number that is not 0.
fn times_of(field: &str, max: u64) -> Result<u64, String> {
    match number_of(field, max)? {
        0 => Err(format!("{} is no whole number from 1 up to {max}", shown(field))),
        number => Ok(number),
    }
}

fn signed_of(field: &str, max: u64) -> Result<i64, String> {
    let (digits, sign) = field.strip_prefix('-').map_or((field, 1), |digits| (digits, -1));
    i64::try_from(number_of(digits, max)?)
        .map(|number| sign * number)
        .map_err(|_| format!("{} is out of its range", shown(field)))
}

fn is_hex(field: &str) -> bool {
    !field.is_empty() && field.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn hex_of(field: &str) -> Result<u64, String> {
    let is_short = is_hex(field) && field.len() <= 16;
    let number = is_short.then(|| u64::from_str_radix(field, 16).ok()).flatten();
    number.ok_or_else(|| format!("{} is no hexadecimal number of up to 16 digits", shown(field)))
}

/// A name is shown to people: nothing in it that a terminal would obey.
fn name_of(field: &str, bytes_max: usize) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte);
    match field.len() {
        1.. if field.len() <= bytes_max && field.bytes().all(is_plain) => Ok(field.to_owned()),
        _ => Err(format!("a name is 1 to {bytes_max} letters, digits and ._+-, not {}", shown(field))),
    }
}

fn stage_of(field: &str) -> Result<Stage, String> {
    Stage::of(field).ok_or_else(|| format!("{} is no stage", shown(field)))
}

// --- writing ---------------------------------------------------------------------------------------------

pub fn write(policy: &Policy) -> String {
    let mut text = format!("hakmem-policy {VERSION}\nprogram {} {}\n", policy.build_id, policy.program);
    let _ = write!(text, "library {}\nruns {}\n", policy.library, policy.runs);
    let _ = write!(text, "stage {}\nstrategy {}\n", policy.stage.name(), policy.strategy);
    if let Some(Gain { millionths, error, duels }) = policy.gain {
        let _ = writeln!(text, "gain {millionths} {error} {duels}");
    }
    if let Some((deviation, duels)) = policy.noise {
        let _ = writeln!(text, "noise {deviation} {duels}");
    }
    if let Some((halvings, runs)) = policy.spare {
        let _ = writeln!(text, "spare {halvings} {runs}");
    }
    for (keyword, times) in [("fell", policy.fell), ("dear", policy.dear)] {
        if times > 0 {
            let _ = writeln!(text, "{keyword} {times}");
        }
    }
    for Filled { block_bytes, slabs, last } in &policy.filled {
        let _ = writeln!(text, "filled {block_bytes} {slabs} {last}");
    }
    for (name, value) in &policy.knobs {
        let _ = writeln!(text, "knob {name} {value}");
    }
    for Rating { strategy, elo, error, duels, standing } in &policy.ratings {
        let standing = match standing {
            Standing::In => "in",
            Standing::Aside => "aside",
            Standing::Out => "out",
        };
        let _ = writeln!(text, "rating {strategy} {elo} {error} {duels} {standing}");
    }
    for Change { ms, from, to, reason, numbers: [a, b] } in &policy.history {
        let from = from.name();
        let _ = writeln!(text, "history {ms} {from} {} {reason} {a} {b}", to.name());
    }
    for Site { module, offset, height, class, kind, numbers: [a, b, c] } in &policy.sites {
        let kind = match kind {
            Kind::Pool => "pool",
            Kind::Keep => "keep",
        };
        let _ = writeln!(text, "site {module:016x} {offset:x} {height} {class} {kind} {a} {b} {c}");
    }
    let end = sum(text.as_bytes())();
    let _ = writeln!(text, "end {end:016x}");
    text
}

/// The option that a knob is.
pub fn knob_row(name: &str) -> Option<&'static options::OptionRow> {
    OPTIONS.iter().find(|row| row.name == name)
}
