//! tests.rs - the page as a text: whole, escaped, without anything from outside. What its script does is tested in a
//! browser (test/tool/report.py).

use super::{hash, json, page, sample};
use crate::profile::model::Profile;

#[test]
fn a_page_names_what_it_shows() {
    let page = page(&sample::profile());
    for wanted in
        ["<title>served: where its memory is</title>", "session_open", "What pins pages", "worker-1"]
    {
        assert!(page.contains(wanted), "{wanted}");
    }
}

#[test]
fn nothing_from_a_file_is_markup() {
    let page = page(&sample::profile());
    assert!(!page.contains("<img") && !page.contains("<b>io") && !page.contains("<script>alert"));
    assert_eq!(page.matches("<script").count(), 2, "the data and the script");
    assert_eq!(page.matches("</script>").count(), 2);
    let head = page.split("<body>").next().unwrap();
    assert_eq!(head.matches("</title>").count(), 1);
    assert!(!page.contains(" style="), "the policy would refuse it");
}

#[test]
fn nothing_is_loaded() {
    let page = page(&sample::profile());
    for part in ["src=", "url(", "@import", "<link", "fetch("] {
        let found = page.match_indices(part).filter(|(at, _)| !page[..*at].ends_with("img ")).count();
        assert_eq!(found, 0, "{part}");
    }
    let names = page.split("http://").skip(1).filter(|rest| !rest.starts_with("www.w3.org/2000/svg"));
    assert_eq!(names.count(), 0);
}

#[test]
fn an_empty_profile_has_a_page() {
    let page = page(&Profile { schema: 1, ..Profile::default() });
    assert!(page.contains("Nothing stands out") && page.contains("Nothing that was sampled is live"));
}

#[test]
fn data_has_no_tags() {
    assert_eq!(json(&"</script><!--&"), "\"\\u003c/script\\u003e\\u003c!--\\u0026\"");
}

#[test]
fn hashes_are_as_a_policy_wants_them() {
    // printf 'alert(1)' | openssl dgst -sha256 -binary | base64
    assert_eq!(hash("alert(1)"), "sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI=");
    assert_eq!(hash(""), "sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
}

#[test]
fn ten_thousand_stacks_are_a_page_of_some_megabytes() {
    let page = page(&sample::many(10_000));
    assert!(page.len() < 8 << 20, "{} bytes", page.len());
}

#[test]
fn a_timeline_that_cannot_be_is_drawn_all_the_same() {
    let mut profile = sample::profile();
    for moment in &mut profile.timeline {
        (moment.resident_bytes, moment.allocated_bytes) = (u64::MAX, u64::MAX);
    }
    profile.timeline.last_mut().unwrap().at_ms = u64::MAX;
    profile.recording.duration_ms = u64::MAX;
    assert!(page(&profile).contains("Over time"));
}
