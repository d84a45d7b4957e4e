//! report/ - `hakmem report`: one self-contained page of a profile. What the program holds, who holds it, what could be
//! done about it, and a graph of the calls to look for oneself.
//!
//! Owns:      what the page says (words, tables, timeline) and what its script is given (graph, columns). The markup, the
//!            style and the script are in page/.
//! Invariant: what came from a file is never markup: the template escapes all of it, the data for the script is JSON in
//!            which no tag can begin, the script makes text nodes only, and the page's policy admits no script but ours,
//!            by its hash. It loads nothing.
//! Rejected:  d3-flame-graph: an element per frame, 10,000 stacks take it seconds; no measures to switch between; d3 is
//!            four times the size of all that is here. A canvas: nothing in it can be focused, found or read aloud.

use crate::output::{Output, STREAM};
use crate::profile::model::Profile;
use crate::text::Failure;
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

mod graph;
#[cfg(test)]
pub mod sample;
pub mod sites;
mod tables;
#[cfg(test)]
mod tests;
mod timeline;
pub mod words;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
/// In this order, inside one function: they share its names.
const SCRIPTS: [&str; 5] = [
    include_str!("page/data.js"),
    include_str!("page/tree.js"),
    include_str!("page/graph.js"),
    include_str!("page/sites.js"),
    include_str!("page/page.js"),
];

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The profile: what hakmem record, dump or run --record wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// The page to write; - is standard output; without it beside FILE, ending in .html
    #[arg(short, long, value_name = "PAGE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let profile = crate::profile::file::read(&arguments.file)?;
    let path = arguments.output.clone().unwrap_or_else(|| match arguments.file.as_path() == Path::new(STREAM) {
        true => PathBuf::from(STREAM),
        false => page_beside(&arguments.file),
    });
    let output = Output::open_beside(&path, std::slice::from_ref(&arguments.file))?;
    output.write(page(&profile).as_bytes())?;
    if output.is_replaced() {
        println!("{}", path.display());
    }
    Ok(0)
}

/// What is behind the last point may be the process's number.
fn page_beside(file: &Path) -> PathBuf {
    let ends = ["hakprof", "hakdump", "html"];
    if file.extension().is_some_and(|extension| ends.iter().any(|end| extension == *end)) {
        return file.with_extension("html");
    }
    let mut name = file.as_os_str().to_owned();
    name.push(".html");
    PathBuf::from(name)
}

#[cfg(test)]
#[test]
fn pages_of_two_profiles_have_two_names() {
    for (file, page) in [
        ("a.hakprof", "a.html"),
        ("a.7.exit.hakdump", "a.7.exit.html"),
        ("a", "a.html"),
        ("a.17", "a.17.html"),
    ] {
        assert_eq!(page_beside(Path::new(file)), Path::new(page));
    }
}

/// What the template is given.
#[derive(Serialize)]
struct View {
    title: String,
    under: String,
    style: &'static str,
    style_hash: String,
    script: String,
    script_hash: String,
    data: String,
    cards: Vec<words::Card>,
    parts: Vec<words::Part>,
    sentences: Vec<String>,
    holders: Vec<words::Holder>,
    actions: Vec<words::Action>,
    warnings: Vec<String>,
    rows: Vec<tables::Row>,
    site_count: usize,
    timeline: Option<timeline::Timeline>,
    lifetimes: Option<tables::Lifetimes>,
    threads: Vec<tables::ThreadRow>,
    threads_left_out: usize,
    pins: Vec<tables::PinRow>,
    pins_left_out: String,
    choices: Vec<tables::Choice>,
    classes: Vec<tables::ClassRow>,
    facts: Vec<(&'static str, String)>,
    modules: Vec<(String, String)>,
    live: String,
}

/// What the script is given.
#[derive(Serialize)]
struct Data<'a> {
    graph: graph::Graph,
    sites: tables::Columns,
    moments: &'a [[u64; 6]],
    resident: u64,
    bucket_ends_us: &'a [u64],
}

pub fn page(profile: &Profile) -> String {
    let sites = sites::sites(profile);
    let (graph, numbers) = graph::graph(profile);
    let timeline = timeline::timeline(profile);
    let data = Data {
        graph,
        sites: tables::columns(profile, &sites, &numbers),
        moments: timeline.as_ref().map_or(&[], |timeline| timeline.moments.as_slice()),
        resident: profile.totals.resident_bytes,
        bucket_ends_us: &profile.bucket_ends_us,
    };
    let script = format!("\n(() => {{\n\"use strict\";\n{}}})();\n", SCRIPTS.concat());
    let threads = tables::threads(profile);
    let (pins, pins_left_out) = tables::pins(profile, &sites);
    let view = View {
        title: tables::title(profile),
        under: tables::under(profile),
        style: STYLE,
        style_hash: hash(STYLE),
        script_hash: hash(&script),
        script,
        data: json(&data),
        cards: words::cards(profile),
        parts: words::parts(profile),
        sentences: words::sentences(profile, &sites),
        holders: words::holders(profile, &sites),
        actions: words::actions(profile, &sites),
        warnings: words::warnings(profile, &sites),
        rows: tables::rows(profile, &sites),
        site_count: sites.len(),
        lifetimes: tables::lifetimes(profile, &sites),
        threads: threads.rows,
        threads_left_out: threads.left_out,
        pins,
        pins_left_out,
        choices: tables::choices(profile, &sites),
        classes: tables::classes(profile),
        facts: tables::facts(profile),
        modules: tables::modules(profile),
        live: tables::live_text(profile),
        timeline,
    };
    let mut templates = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    templates.set_syntax(syntax.unwrap_or_default());
    // The name's end is what turns escaping on.
    let page = templates.render_named_str("page.html", TEMPLATE, Serde(view));
    // The template is part of the program and rendered by its tests: an error here is ours.
    page.unwrap_or_else(|error| panic!("the page's template: {error:#}"))
}

/// JSON that may stand in a script element: no tag and no comment can begin in it.
fn json(data: &impl Serialize) -> String {
    let text = serde_json::to_string(data).unwrap_or_else(|error| panic!("the page's data: {error}"));
    text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// As a content security policy names an element's contents.
fn hash(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Sha256::digest(text).to_vec();
    bytes.push(0); // 32 bytes are ten groups of three and two bytes
    let groups =
        bytes.chunks(3).map(|group| group.iter().fold(0, |bits, byte| bits << 8 | usize::from(*byte)));
    let digits = groups.flat_map(|bits| [18, 12, 6, 0].map(|shift| char::from(DIGITS[bits >> shift & 63])));
    format!("sha256-{}=", digits.take(43).collect::<String>())
}
