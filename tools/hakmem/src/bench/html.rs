//! html.rs - one self-contained page of a result file: what a person needs to see who is fast, who is small, and where
//! HAKMEM is neither.
//!
//! Owns:      what the page says and where its marks stand. The markup, the style and the script are in page/; the
//!            template escapes everything that it is given, and nothing here makes markup.
//! Invariant: the page loads nothing and says all that it knows without its script, which only sorts and filters.
//! Rejected:  a plotting crate: its pictures scale their text, know no themes, and are one block to a screen reader;
//!            here a plot is a table whose cells have marks.

use super::compare::Comparison;
use super::results::Results;
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use serde::Serialize;

mod counts;
mod facts;
mod figures;
mod headline;
mod map;
mod marks;
#[cfg(test)]
pub mod sample;
mod scale;
mod strips;
#[cfg(test)]
mod tests;

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// What the template is given.
#[derive(Serialize)]
struct View<'a> {
    style: &'static str,
    script: &'static str,
    headline: headline::Headline,
    worse: Vec<headline::WorseList>,
    ranks: Vec<headline::Rank>,
    warnings: Vec<String>,
    marks: &'a [marks::Mark],
    shapes: &'static [marks::Shape],
    maps: Vec<map::Map>,
    plot: strips::Plot,
    counts: Option<counts::Counted>,
    syscalls: Option<counts::Counted>,
    facts: Vec<facts::Fact>,
    allocators: figures::Table,
    repeat: String,
    comparison: Option<facts::Changes>,
}

/// The page, and if there is one, how it compares with an earlier file.
pub fn page(results: &Results, comparison: Option<&Comparison>) -> String {
    let marks = marks::marks(results);
    let view = View {
        style: STYLE,
        script: SCRIPT,
        headline: headline::headline(results),
        worse: headline::worse(results),
        ranks: headline::ranks(results),
        warnings: facts::warnings(results),
        marks: &marks,
        shapes: &marks::SHAPES,
        maps: map::maps(results, &marks),
        plot: strips::plot(results, &marks),
        counts: counts::counts(results),
        syscalls: counts::syscalls(results),
        facts: facts::facts(results),
        allocators: facts::allocators(results),
        repeat: facts::repeat(results),
        comparison: comparison.map(facts::changes),
    };
    let mut templates = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    templates.set_syntax(syntax.unwrap_or_default());
    // The name's end is what turns escaping on.
    let page = templates.render_named_str("page.html", TEMPLATE, Serde(view));
    // The template is part of the program and rendered by its tests: an error here is ours.
    page.unwrap_or_else(|error| panic!("the page's template: {error:#}"))
}
