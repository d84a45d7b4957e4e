//! The page, as a browser, a search for trouble, or a stranger's result file would find it.

use super::{page, sample};
use crate::bench::compare;
use crate::bench::results::{Results, Time};

/// Text that would do harm wherever it were not escaped.
const HOSTILE: &str =
    "\"'><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>{{ 7*7 }}{% x %}&amp;";

fn page_of(results: &Results) -> String {
    let page = page(results, None);
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for mistake in ["NaN", "inf", "undefined", "{{", "{%", "none</"] {
        // The script has words of its own.
        let markup = page.split("<script>").next().unwrap();
        assert!(!markup.contains(mistake), "'{mistake}' in {}", around(markup, mistake));
    }
    assert_balanced(&page);
    page
}

fn around<'a>(text: &'a str, part: &str) -> &'a str {
    let at = text.find(part).unwrap_or(0);
    let from = (0..=at.saturating_sub(80)).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let to = (at + 80..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    &text[from..to.max(from)]
}

/// Every element is closed by its own name, in order: what an unescaped '<' breaks first.
fn assert_balanced(page: &str) {
    const VOID: [&str; 6] = ["meta", "br", "input", "img", "link", "hr"];
    let mut open: Vec<String> = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let end = rest.find('>').expect("a tag ends");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') {
            continue;
        }
        let name: String =
            tag.trim_start_matches('/').chars().take_while(char::is_ascii_alphanumeric).collect();
        assert!(!name.is_empty(), "a '<' is not escaped: <{tag}>");
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "after {:?}", around(page, tag));
        } else if !tag.ends_with('/') && !VOID.contains(&name.as_str()) {
            if name == "script" || name == "style" {
                rest = &rest[rest.find(&format!("</{name}>")).expect("it ends")..];
            }
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<String>::new());
}

/// Writes pages to look at: PAGES=folder cargo test.
#[test]
fn pages_can_be_looked_at() {
    let new = sample::sample();
    let mut old = sample::sample_of(99);
    sample::slow_down(&mut old, "hakmem", 1.25, &["storm/1000", "larson", "pairs/64"]);
    old.allocators[0].sha256 = Some("ab".repeat(32));
    let comparison = compare::compare(&old, &new);
    let pages = [
        ("page.html", page(&new, None)),
        ("compare.html", page(&new, Some(&comparison))),
        ("compare.txt", compare::text(&comparison)),
        ("large.html", page(&sample::made_up(60, 10, 9, 1), None)),
        ("sample.json", serde_json::to_string_pretty(&new).unwrap()),
    ];
    let Some(folder) = std::env::var_os("PAGES") else { return };
    for (name, text) in pages {
        std::fs::write(std::path::Path::new(&folder).join(name), text).unwrap();
    }
}

#[test]
fn the_page_says_where_hakmem_stands_and_where_it_does_not() {
    let results = sample::sample();
    let page = page_of(&results);
    let focus = &results.summary[0];
    let time = format!("HAKMEM takes {:.2} times as long", focus.time_over_best.unwrap());
    let peak = format!("needs {:.2} times the peak memory", focus.peak_over_best.unwrap());
    assert!(page.contains(&time) && page.contains(&peak), "{time}, {peak}");
    assert!(page.contains(&format!("not the fastest in {} of 20 rows", focus.time_worse.len())));
    let worst = &focus.time_worse[0];
    let row = worst.row.replace('/', "&#x2f;");
    assert!(
        page.contains(&format!(
            "furthest in {row}: {:.2} times {}&#x27;s time",
            worst.ratio.median, worst.best
        ))
    );
    for worse in focus.time_worse.iter().chain(&focus.peak_worse) {
        let at = results.rows.iter().position(|row| row.name == worse.row).unwrap();
        assert!(page.contains(&format!("<a href=\"#row-{at}\">")), "{}", worse.row);
        assert!(page.contains(&format!("id=\"row-{at}\"")), "{}", worse.row);
    }
    assert!(page.contains("Not the smallest after the work: 1 of 3 rows"));
    assert!(page.contains("The machine has 2 processors"));
    assert!(page.contains("redis: redis-server is not installed"));
    assert!(page.contains("snmalloc failed: crashed: SIGSEGV"), "a failed cell says what happened");
    assert!(page.contains("failed in vm&#x2f;untouched"), "{}", around(&page, "failed in"));
    assert!(page.contains(">not steady</span>"));
    assert!(page.contains("Instructions per operation, the allocator&#x27;s part"));
    assert!(page.contains("System calls of one run"));
    assert!(page.contains(results.allocators[4].sha256.as_ref().unwrap()));
    assert!(page.contains("hakmem bench quick --json results.json"));
}

#[test]
fn every_measured_cell_has_its_marks_and_no_failed_one_has() {
    let results = sample::sample();
    let page = page_of(&results);
    for (at, row) in results.rows.iter().enumerate().filter(|(_, row)| row.skipped.is_none()) {
        let body = page.split(&format!("id=\"row-{at}\"")).nth(1).unwrap();
        let body = body.split("</tbody>").next().unwrap();
        let marks = body.matches("<title>").count();
        let measured = row.cells.iter().filter(|cell| cell.figures.is_some()).count();
        assert_eq!(marks, measured * if row.resident_after { 3 } else { 2 }, "{}", row.name);
    }
}

#[test]
fn a_wide_interval_is_not_called_a_tie() {
    let mut results = sample::sample();
    let row = results.rows.iter_mut().find(|row| row.name == "storm/1000").unwrap();
    let ratio = &mut row.cells[0].figures.as_mut().unwrap().time_ratio;
    (ratio.low, ratio.high) = (0.9, 2.1);
    assert!(page_of(&results).contains("<span>× tcmalloc, not sure</span>"));
}

#[test]
fn hostile_names_stay_text() {
    let mut results = sample::sample();
    let texts: &mut [&mut String] = &mut [
        &mut results.started,
        &mut results.tool,
        &mut results.machine.processor,
        &mut results.machine.system,
        &mut results.settings.interval,
        &mut results.settings.asked[0],
    ];
    for text in texts {
        **text = HOSTILE.to_owned();
    }
    results.settings.command = Some(HOSTILE.to_owned());
    results.settings.count_method = Some(HOSTILE.to_owned());
    let peer = &mut results.allocators[1];
    (peer.version, peer.source) = (HOSTILE.to_owned(), HOSTILE.to_owned());
    (peer.path, peer.sha256, peer.mode) = (Some(HOSTILE.into()), Some(HOSTILE.into()), Some(HOSTILE.into()));
    peer.environment.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    for row in &mut results.rows {
        for text in
            [&mut row.name, &mut row.about, &mut row.program, &mut row.arguments[0], &mut row.profiles[0]]
        {
            *text = HOSTILE.to_owned();
        }
        row.program_version = Some(HOSTILE.to_owned());
        row.skipped = row.skipped.take().map(|_| HOSTILE.to_owned());
        row.shows = vec![HOSTILE.to_owned()];
        for cell in &mut row.cells {
            cell.error = cell.error.take().map(|_| HOSTILE.to_owned());
            cell.counts_error = Some(HOSTILE.to_owned());
            cell.syscalls_error = Some(HOSTILE.to_owned());
            cell.syscalls = cell.syscalls.take().map(|_| [(HOSTILE.to_owned(), 5)].into());
            for part in cell.runs.iter_mut().flat_map(|run| &mut run.parts) {
                part.name = HOSTILE.to_owned();
            }
        }
    }
    sample::rename(&mut results, "jemalloc", HOSTILE);
    sample::finish(&mut results);
    let mut old = results.clone();
    old.machine.kernel = HOSTILE.to_owned();
    old.allocators[0].sha256 = None;
    let comparison = compare::compare(&old, &results);
    for page in [page(&results, None), page(&results, Some(&comparison))] {
        assert_balanced(&page);
        assert_eq!(page.matches("<script").count(), 1, "only its own");
        assert!(!page.contains("<img") && page.contains("{{ 7*7 }}{% x %}"), "names are no template");
        assert!(page.contains("&lt;script&gt;alert(1)"));
        assert_self_contained(&page);
    }
    assert_eq!(compare::text(&comparison).matches('\u{1b}').count(), 0);
}

/// Nothing that a browser would fetch: every reference is to the page itself.
fn assert_self_contained(page: &str) {
    for tag in page.split('<').filter_map(|part| part.split('>').next()) {
        // Every attribute is name="value": a quotation mark in a value is escaped.
        let parts: Vec<&str> = tag.split('"').collect();
        for pair in parts.chunks_exact(2) {
            let name = pair[0].trim().rsplit(' ').next().unwrap_or_default();
            let loads =
                ["src=", "href=", "srcset=", "action=", "data=", "poster=", "xlink:href="].contains(&name);
            assert!(!loads || pair[1].starts_with('#'), "<{tag}>");
            assert!(!name.starts_with("on"), "<{tag}>");
        }
        for name in ["link ", "iframe", "object", "embed", "base ", "img"] {
            assert!(!tag.starts_with(name), "<{tag}>");
        }
    }
    let style = page.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    assert!(!style.contains("url(") && !style.contains("@import"), "the style loads something");
    let script = page.split("<script>").nth(1).unwrap();
    assert!(!script.contains("fetch(") && !script.contains("import(") && !script.contains("innerHTML"));
}

#[test]
fn the_page_loads_nothing_and_forbids_it() {
    let page = page_of(&sample::sample());
    assert_self_contained(&page);
    assert!(page.contains("Content-Security-Policy\" content=\"default-src 'none'"));
}

#[test]
#[should_panic(expected = "evil.example")]
fn a_reference_to_elsewhere_would_be_found() {
    assert_self_contained("<style></style><script></script><a href=\"http://evil.example\">");
}

#[test]
#[should_panic(expected = "after")]
fn broken_markup_would_be_found() {
    assert_balanced("<p>a<b></p>");
}

#[test]
fn nothing_measured_is_said() {
    let page = page_of(&sample::empty());
    assert!(page.contains("Nothing was measured"));
    assert!(!page.contains("id=\"table\"") && !page.contains("class=\"map"));
}

#[test]
fn one_allocator_is_shown_without_a_race() {
    let page = page_of(&sample::made_up(4, 1, 9, 3));
    assert!(page.contains("HAKMEM alone, 4 workloads") && page.contains("Only HAKMEM was measured"));
    assert!(!page.contains("class=\"map") && !page.contains("Not the fastest"));
}

#[test]
fn without_hakmem_the_others_are_compared() {
    let mut results = sample::sample();
    results.allocators.remove(0);
    results.rows.iter_mut().filter(|row| !row.cells.is_empty()).for_each(|row| drop(row.cells.remove(0)));
    sample::finish(&mut results);
    let page = page_of(&results);
    assert!(
        page.contains("HAKMEM was not among the allocators") && page.contains("Fastest over all rows is")
    );
    assert!(page.contains("class=\"map"));
}

#[test]
fn when_all_cells_failed_each_says_why() {
    let mut results = sample::made_up(3, 3, 9, 5);
    let names: Vec<String> = results.allocators.iter().map(|allocator| allocator.name.clone()).collect();
    for row in 0..3 {
        for name in &names {
            sample::fail(&mut results, &format!("workload/{row}"), name, "hangs: killed after 10 s");
        }
    }
    sample::finish(&mut results);
    let page = page_of(&results);
    assert!(page.contains("Nothing was measured"));
    assert_eq!(page.matches("failed: hangs: killed after 10 s").count(), 9);
    assert!(!page.contains("class=\"map"));
}

#[test]
fn numbers_that_are_none_do_no_harm() {
    let mut results = sample::made_up(3, 4, 9, 5);
    for (at, cell) in results.rows.iter_mut().flat_map(|row| &mut row.cells).enumerate() {
        let odd = [f64::NAN, f64::INFINITY, 0.0, -1.0][at % 4];
        let figures = cell.figures.as_mut().unwrap();
        (figures.time_ns.median, figures.time_ns.low, figures.rate_per_s) = (odd, odd, odd);
        (figures.time_ratio.median, figures.time_ratio.low, figures.time_ratio.high) = (odd, odd, odd);
        (figures.peak_kb.median, figures.peak_ratio.median, figures.cpu_over_wall) = (odd, odd, odd);
        figures.resident_kb.iter_mut().for_each(|kb| (kb.median, kb.low, kb.high) = (odd, odd, odd));
        cell.runs.iter_mut().for_each(|run| (run.ops, run.cpu_ns, run.peak_kb) = (0, 0, 0));
    }
    for (at, summary) in results.summary.iter_mut().enumerate() {
        let odd = [f64::NAN, f64::INFINITY, 0.0, 1e300][at % 4];
        (summary.time_over_best, summary.peak_over_best) = (Some(odd), Some(odd));
    }
    results.machine.load_before = f64::NAN;
    page_of(&results);
    let comparison = compare::compare(&results, &results);
    page(&results, Some(&comparison));
    let text = compare::text(&comparison);
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn sixty_rows_of_ten_allocators_are_a_small_file() {
    let mut results = sample::made_up(60, 10, 30, 1);
    results.rows.iter_mut().for_each(|row| row.rate = row.time == Time::Cpu);
    let page = page_of(&results);
    assert!(page.len() < 1_500_000, "{} bytes", page.len());
    assert!(page.matches("<title>").count() > 60 * 10 * 2);
}

#[test]
fn more_allocators_than_shapes_and_colours_are_still_told_apart() {
    let results = sample::made_up(2, 30, 6, 1);
    page_of(&results);
    let marks = super::marks::marks(&results);
    let mut looks: Vec<(usize, usize)> = marks.iter().map(|mark| (mark.shape, mark.colour)).collect();
    looks.sort_unstable();
    looks.dedup();
    assert!(looks.len() >= 20, "{looks:?}");
    assert!(marks.iter().filter(|mark| mark.shape == 0).all(|mark| mark.is_focus));
}

#[test]
fn what_changed_stands_on_the_page_when_asked() {
    let new = sample::sample();
    let mut old = sample::sample_of(99);
    old.allocators[0].sha256 = Some("ab".repeat(32));
    sample::slow_down(&mut old, "hakmem", 1.25, &["storm/1000"]);
    let page = page(&new, Some(&compare::compare(&old, &new)));
    assert_balanced(&page);
    assert!(page.contains("What changed since the earlier run") && page.contains("HAKMEM is another binary"));
    assert!(page.contains("1 change is more than noise"), "{}", around(&page, "more than noise"));
}
