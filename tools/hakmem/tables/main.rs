//! Makes the tool's tables of options and counters from the library's own, so that they cannot differ.
//!
//! The tables are src/rules/{options,counters}.def of the project; a crate that is packaged alone carries a
//! copy of both in its folder rules/.

mod rows;

use rows::{Argument, Row, rows_parse, strategies_parse};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, process};

fn main() {
    println!("cargo::rerun-if-changed=tables");
    if let Err(reason) = tables_make() {
        println!("cargo::error={reason}");
        process::exit(1);
    }
}

fn tables_make() -> Result<(), String> {
    let crate_dir =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("no CARGO_MANIFEST_DIR: use cargo")?);
    let out_dir = PathBuf::from(env::var_os("OUT_DIR").ok_or("no OUT_DIR: use cargo")?);
    let mut source = String::new();
    options_make(&table_read(&crate_dir, "options.def")?, &mut source)?;
    counters_make(&table_read(&crate_dir, "counters.def")?, &mut source)?;
    learn_make(&crate_dir, &mut source)?;
    let path = out_dir.join("tables.rs");
    fs::write(&path, source).map_err(|error| format!("{}: {error}", path.display()))
}

fn table_read(crate_dir: &Path, name: &str) -> Result<Vec<Row>, String> {
    let places = [crate_dir.join("rules").join(name), crate_dir.join("../../src/rules").join(name)];
    let Some(path) = places.iter().find(|path| path.is_file()) else {
        return Err(format!(
            "no {name}: neither {} nor {} is there",
            places[0].display(),
            places[1].display()
        ));
    };
    println!("cargo::rerun-if-changed={}", path.display());
    let source = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    rows_parse(&source).map_err(|reason| format!("{}: {reason}", path.display()))
}

fn options_make(rows: &[Row], source: &mut String) -> Result<(), String> {
    source.push_str("pub static OPTIONS: &[OptionRow] = &[\n");
    for row in rows {
        let (name, value, when, text) = match (row.macro_name.as_str(), row.arguments.as_slice()) {
            ("HAK_OPTION", [name, default, min, max, when, text]) => {
                let (default, min, max) = (default.number()?, min.number()?, max.number()?);
                (name, format!("Value::Number {{ default: {default}, min: {min}, max: {max} }}"), when, text)
            }
            ("HAK_OPTION_TEXT", [name, when, text]) => (name, "Value::Text".to_owned(), when, text),
            _ => return Err(format!("a row that this tool does not know: {row:?}")),
        };
        let when = match when.word()? {
            "START" => "When::Start",
            "ANY" => "When::Any",
            other => return Err(format!("'{other}' is neither START nor ANY")),
        };
        let flag = name.word()?.replace('_', "-");
        line_add(source, "OptionRow", name, &format!("flag: {flag:?}, value: {value}, when: {when}"), text)?;
    }
    source.push_str("];\n");
    Ok(())
}

fn counters_make(rows: &[Row], source: &mut String) -> Result<(), String> {
    source.push_str("pub static COUNTERS: &[CounterRow] = &[\n");
    for row in rows {
        match (row.macro_name.as_str(), row.arguments.as_slice()) {
            ("HAK_COUNTER", [name, unit, text]) => {
                line_add(source, "CounterRow", name, &format!("unit: {:?}", unit.word()?), text)?;
            }
            _ => return Err(format!("a row that this tool does not know: {row:?}")),
        }
    }
    source.push_str("];\n");
    Ok(())
}

/// The words of src/learn for its reasons and strategies. A tree without that folder has none, and still a tool.
fn learn_make(crate_dir: &Path, source: &mut String) -> Result<(), String> {
    let read = |name: &str| {
        let places = [crate_dir.join("rules").join(name), crate_dir.join("../../src/learn").join(name)];
        let Some(path) = places.iter().find(|path| path.is_file()) else {
            return String::new();
        };
        // Of one that is not there cargo would say that it has changed, and build everything each time.
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(path).unwrap_or_default()
    };
    let io = |error: std::fmt::Error| error.to_string();
    source.push_str("pub static REASONS: &[(&str, &str, &str)] = &[\n");
    for row in rows_parse(&read("reasons.def")).map_err(|reason| format!("reasons.def: {reason}"))? {
        match row.arguments.as_slice() {
            [name, numbers, words] => {
                let (name, numbers, words) = (name.word()?, numbers.text()?, words.text()?);
                writeln!(source, "    ({name:?}, {numbers:?}, {words:?}),").map_err(io)?;
            }
            _ => return Err(format!("a reason that this tool does not know: {row:?}")),
        }
    }
    source.push_str("];\n/// Name, words, and what it sets.\npub type Strategy = (&'static str, &'static str, &'static [(&'static str, u64)]);\npub static STRATEGIES: &[Strategy] = &[\n");
    for row in
        strategies_parse(&read("strategies.def")).map_err(|reason| format!("strategies.def: {reason}"))?
    {
        let (name, words, knobs) = row;
        writeln!(source, "    ({name:?}, {words:?}, &{knobs:?}),").map_err(io)?;
    }
    source.push_str("];\n");
    Ok(())
}

fn line_add(
    source: &mut String,
    row: &str,
    name: &Argument,
    fields: &str,
    text: &Argument,
) -> Result<(), String> {
    let (name, text) = (name.word()?, text.text()?);
    writeln!(source, "    {row} {{ name: {name:?}, {fields}, text: {text:?} }},")
        .map_err(|error| error.to_string())
}
