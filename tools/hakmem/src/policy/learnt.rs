//! learnt.rs - what was learnt, wherever it is told: a policy file, or the "learn" object of a report.
//!
//! Owns: what `hakmem explain` speaks about; words.rs has the words.

use super::{Change, Gain, Kind, Policy, Stage, Standing};
use crate::options::{OPTIONS, OptionRow, STRATEGIES};
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learnt {
    /// Whose it is: "redis-server (build-id 4c1b0a7e)", "process 1234".
    pub whose: String,
    pub library: Option<String>,
    pub runs: Option<u64>,
    pub stage: Option<Stage>,
    /// What HAKMEM_EVO_POLICY says.
    pub fixed: Option<String>,
    /// Nobody has set it.
    pub is_fixed_by_default: bool,
    /// The one that won last; `baseline` if none did.
    pub strategy: String,
    pub gain: Option<Gain>,
    /// The standard deviation of a duel, in millionths.
    pub noise: Option<u64>,
    /// How often the bound on free memory is halved, runs behind it; only a file has it.
    pub spare: Option<(u64, u64)>,
    /// Bytes that each run fills with blocks of up to 1 MiB, and whether huge pages were dear the last time; only a file has it.
    pub filled_bytes: u64,
    pub is_dear: bool,
    pub tally: Option<Tally>,
    pub knobs: Vec<(String, u64)>,
    /// Knobs that the environment of the program sets: these win.
    pub set: Vec<(String, u64)>,
    pub rivals: Vec<Rival>,
    pub history: Vec<Change>,
    pub sites: Sites,
    pub window: Option<Window>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub windows: u64,
    pub duels: u64,
    /// Thrown away: a fork, a stop of the process, memory that ran short.
    pub void_duels: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Rival {
    pub strategy: String,
    /// By which it is cheaper than the baseline, and the standard error; a file keeps only the chosen one's.
    pub gain: Option<(i64, u64)>,
    pub elo: i64,
    pub elo_error: u64,
    pub duels: u64,
    /// in, aside, spent, out, barred.
    pub standing: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sites {
    pub long: u64,
    pub short: u64,
    /// They come back for the large blocks that they freed.
    pub keep: u64,
}

/// The last window's cost in nanoseconds, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Window {
    pub ms: u64,
    pub work_ns: u64,
    pub fault_ns: u64,
    pub memory_ns: u64,
}

/// Of the class whose blocks have so many bytes (src/slab/class.c); 0: a granule of large blocks.
fn slab_bytes(block_bytes: u64) -> u64 {
    match block_bytes {
        0..=256 => 64 << 10,
        257..=4224 => 256 << 10,
        _ => 1 << 20,
    }
}

impl From<&Policy> for Learnt {
    fn from(policy: &Policy) -> Learnt {
        let rivals = policy.ratings.iter().map(|rating| Rival {
            strategy: rating.strategy.clone(),
            gain: policy
                .gain
                .filter(|_| rating.strategy == policy.strategy)
                .map(|gain| (gain.millionths, gain.error)),
            elo: rating.elo,
            elo_error: rating.error,
            duels: rating.duels,
            standing: match rating.standing {
                Standing::In => "in",
                Standing::Aside => "aside",
                Standing::Out => "out",
            }
            .to_owned(),
        });
        let mut sites = Sites::default();
        for site in &policy.sites {
            match site.kind {
                Kind::Pool if site.numbers[0] == 1 => sites.long += 1,
                Kind::Pool => sites.short += 1,
                Kind::Keep => sites.keep += 1,
            }
        }
        let build_id: String = policy.build_id.chars().take(12).collect();
        Learnt {
            whose: format!("{} (build-id {build_id})", policy.program),
            library: Some(policy.library.clone()),
            runs: Some(policy.runs),
            stage: Some(policy.stage),
            fixed: None,
            is_fixed_by_default: false,
            strategy: policy.strategy.clone(),
            gain: policy.gain,
            noise: policy.noise.map(|(deviation, _)| deviation),
            spare: policy.spare.filter(|(halvings, _)| *halvings > 0),
            filled_bytes: policy.filled.iter().map(|row| row.slabs * slab_bytes(row.block_bytes)).sum(),
            is_dear: policy.dear > 0,
            tally: None,
            knobs: policy.knobs.clone(),
            set: Vec::new(),
            rivals: rivals.collect(),
            history: policy.history.clone(),
            sites,
            window: None,
        }
    }
}

impl Learnt {
    /// Of the library's report, HAKMEM_REPORT; None: this library does not learn.
    pub fn of_report(report: &Value, whose: &str) -> Option<Learnt> {
        let learn = report.get("learn")?;
        let text =
            |value: &Value, name: &str| plain(value.get(name).and_then(Value::as_str).unwrap_or_default());
        let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or(0);
        let signed = |value: &Value, name: &str| value.get(name).and_then(Value::as_i64).unwrap_or(0);
        let rows = |name: &str| learn.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
        let stage = |name: &str| Stage::of(name).unwrap_or(Stage::Off);
        let rivals = rows("ratings").into_iter().map(|row| Rival {
            strategy: text(&row, "strategy"),
            gain: (number(&row, "duels") > 0)
                .then(|| (signed(&row, "gain_millionths"), number(&row, "error_millionths"))),
            elo: signed(&row, "elo"),
            elo_error: number(&row, "elo_error"),
            duels: number(&row, "duels"),
            standing: text(&row, "state"),
        });
        let rivals: Vec<Rival> = rivals.collect();
        let history = rows("history").into_iter().map(|row| Change {
            ms: number(&row, "ms"),
            from: stage(&text(&row, "from")),
            to: stage(&text(&row, "to")),
            reason: text(&row, "reason"),
            numbers: [0, 1].map(|at| {
                row.get("numbers").and_then(|numbers| numbers.get(at)).and_then(Value::as_i64).unwrap_or(0)
            }),
        });
        let history = history.collect();
        let strategy = chosen(stage(&text(learn, "stage")), text(learn, "frozen_strategy"), &rivals);
        let gain = Gain {
            millionths: signed(learn, "gain_millionths"),
            error: number(learn, "gain_error_millionths"),
            duels: number(learn, "gain_duels"),
        };
        let fixed = text(learn, "policy");
        let window = learn.get("window").map(|window| Window {
            ms: number(window, "ms"),
            work_ns: number(window, "work_ns"),
            fault_ns: number(window, "fault_ns"),
            memory_ns: number(window, "memory_ns"),
        });
        let version = report.get("version").and_then(Value::as_str).map(plain);
        Some(Learnt {
            whose: whose.to_owned(),
            library: version,
            runs: None,
            stage: Some(stage(&text(learn, "stage"))),
            fixed: Some(fixed).filter(|fixed| fixed != "auto"),
            is_fixed_by_default: false,
            gain: (gain.duels > 0).then_some(gain),
            noise: Some(number(learn, "noise_millionths")).filter(|noise| *noise > 0),
            spare: None,
            filled_bytes: 0,
            is_dear: false,
            tally: Some(Tally {
                windows: number(learn, "windows"),
                duels: number(learn, "duels"),
                void_duels: number(learn, "void_duels"),
            }),
            knobs: strategy_knobs(&strategy),
            set: Vec::new(),
            strategy,
            rivals,
            history,
            sites: Sites::default(),
            window: window.filter(|window| window.ms > 0),
        })
    }
}

/// In CANARY the one on trial is the best of those that may still win, and `frozen` the one of before.
pub fn chosen(stage: Stage, frozen: String, rivals: &[Rival]) -> String {
    let open = rivals.iter().filter(|rival| rival.standing == "in" && rival.duels > 0 && rival.elo > 0);
    let on_trial = open.max_by_key(|rival| rival.elo).map(|rival| rival.strategy.clone());
    on_trial.filter(|_| stage == Stage::Canary).unwrap_or(frozen)
}

/// What the library calls a file's values that no row has, where the file calls them as a row is called.
const SAVED: &str = "saved";

impl Learnt {
    /// What is in force where only the strategy's name is shown: a policy file of that strategy brought values of its own, and what the
    /// environment sets wins. What is known by call site and of memory only the file has.
    pub fn in_force(mut self, file: Option<&Policy>, environment: &[(String, String)]) -> Learnt {
        if let Some(policy) = file {
            let Learnt { sites, spare, filled_bytes, is_dear, .. } = Learnt::from(policy);
            (self.sites, self.spare, self.filled_bytes, self.is_dear) = (sites, spare, filled_bytes, is_dear);
        }
        if let Some(policy) =
            file.filter(|policy| [&policy.strategy, SAVED].contains(&self.strategy.as_str()))
        {
            self.knobs = policy.knobs.clone();
        }
        let number = |row: &OptionRow| {
            let (_, value) = environment.iter().find(|(name, _)| *name == row.variable())?;
            value.parse().ok().filter(|_| row.value_refused(value).is_none())
        };
        let is_knob = |row: &&OptionRow| {
            STRATEGIES.iter().any(|(_, _, knobs)| knobs.iter().any(|(knob, _)| *knob == row.name))
        };
        let rows = OPTIONS.iter().filter(is_knob);
        self.set = rows.filter_map(|row| Some((row.name.to_owned(), number(row)?))).collect();
        self
    }
}

/// The knobs of a strategy that this command knows.
pub fn strategy_knobs(name: &str) -> Vec<(String, u64)> {
    let known = STRATEGIES.iter().find(|(known, ..)| *known == name);
    known.map_or(Vec::new(), |(_, _, knobs)| {
        knobs.iter().map(|(knob, value)| ((*knob).to_owned(), *value)).collect()
    })
}

/// Whatever was written there: one line, nothing that a terminal would obey.
pub fn plain(text: &str) -> String {
    text.chars().take(64).map(|c| if c.is_control() { '?' } else { c }).collect()
}
