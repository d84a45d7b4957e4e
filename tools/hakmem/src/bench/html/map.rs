//! map.rs - time against memory: one mark an allocator, at its geometric means.

use super::marks::Mark;
use super::scale::{Scale, tenth};
use crate::bench::results::Results;
use crate::bench::words;
use serde::Serialize;

/// For the name of the axis, and beside it numbers of five characters.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// Of a label's letter, at the size that page.css gives it.
const LETTER_PIXELS: f64 = 7.3;
const LABEL_PIXELS: f64 = 15.0;
const MARK_PIXELS: f64 = 8.0;

/// The same picture for a wide and for a narrow screen: scaling one of them would scale its letters.
#[derive(Debug, Serialize)]
pub struct Map {
    pub class: &'static str,
    pub width: f64,
    pub height: f64,
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
    pub x_ticks: Vec<MapTick>,
    pub y_ticks: Vec<MapTick>,
    pub points: Vec<Point>,
}

#[derive(Debug, Serialize)]
pub struct MapTick {
    pub at: f64,
    pub label: String,
}

#[derive(Debug, Serialize)]
pub struct Point {
    pub index: usize,
    pub shape: usize,
    pub is_focus: bool,
    pub name: String,
    pub title: String,
    pub x: f64,
    pub y: f64,
    pub label_x: f64,
    pub label_y: f64,
    pub anchor: &'static str,
}

#[derive(Clone, Copy)]
struct Rectangle {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Rectangle {
    fn around(x: f64, y: f64, half: f64) -> Rectangle {
        Rectangle { left: x - half, top: y - half, right: x + half, bottom: y + half }
    }

    fn shared_with(&self, other: &Rectangle) -> f64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        width.max(0.0) * height.max(0.0)
    }
}

/// Empty when there are not two allocators to compare.
pub fn maps(results: &Results, marks: &[Mark]) -> Vec<Map> {
    let means = |mark: &'_ Mark| {
        let name = &results.allocators[mark.index].name;
        let summary = results.summary.iter().find(|summary| summary.allocator == *name)?;
        let both = (summary.time_over_best?, summary.peak_over_best?);
        (both.0.is_finite() && both.1.is_finite() && both.0 > 0.0 && both.1 > 0.0).then_some(both)
    };
    let all: Vec<(&Mark, (f64, f64))> = marks.iter().filter_map(|mark| Some((mark, means(mark)?))).collect();
    if all.len() < 2 {
        return Vec::new();
    }
    vec![map("wide", 700.0, 430.0, &all), map("narrow", 350.0, 380.0, &all)]
}

fn map(class: &'static str, width: f64, height: f64, all: &[(&Mark, (f64, f64))]) -> Map {
    let (right, bottom) = (width - RIGHT, height - BOTTOM);
    let largest = |of: fn(&(f64, f64)) -> f64| all.iter().map(|(_, means)| of(means)).fold(1.0, f64::max);
    // A little room beyond the last mark, for its label.
    let x_scale = Scale::new(largest(|means| means.0).powf(1.12) * 1.02, 0.0, 100.0);
    let y_scale = Scale::new(largest(|means| means.1).powf(1.08) * 1.02, 0.0, 100.0);
    let x_at = |percent: f64| tenth(LEFT + MARK_PIXELS + (right - LEFT - MARK_PIXELS) * percent / 100.0);
    let y_at = |percent: f64| tenth(bottom - MARK_PIXELS - (bottom - MARK_PIXELS - TOP) * percent / 100.0);
    let mut points: Vec<Point> = all
        .iter()
        .map(|(mark, (time, peak))| Point {
            index: mark.index,
            shape: mark.shape,
            is_focus: mark.is_focus,
            name: mark.name.clone(),
            title: format!(
                "{}: time {}, peak memory {}",
                mark.name,
                words::ratio(*time),
                words::ratio(*peak)
            ),
            x: x_at(x_scale.x(*time)),
            y: y_at(y_scale.x(*peak)),
            label_x: 0.0,
            label_y: 0.0,
            anchor: "start",
        })
        .collect();
    labels_place(&mut points, Rectangle { left: LEFT, top: 0.0, right: width, bottom });
    points.sort_by_key(|point| point.is_focus);
    let x_ticks =
        x_scale.ticks().into_iter().map(|tick| MapTick { at: x_at(tick.x), label: tick.label }).collect();
    let y_ticks =
        y_scale.ticks().into_iter().map(|tick| MapTick { at: y_at(tick.x), label: tick.label }).collect();
    Map { class, width, height, left: LEFT, right, top: TOP, bottom, x_ticks, y_ticks, points }
}

/// Each label where it covers least of the marks and of the labels before it; the focus chooses first.
fn labels_place(points: &mut [Point], frame: Rectangle) {
    let dots: Vec<Rectangle> =
        points.iter().map(|point| Rectangle::around(point.x, point.y, MARK_PIXELS)).collect();
    let mut taken: Vec<Rectangle> = Vec::new();
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|at| !points[*at].is_focus);
    for at in order {
        let point = &points[at];
        let width =
            point.name.chars().count() as f64 * LETTER_PIXELS * if point.is_focus { 1.15 } else { 1.0 };
        let mut best: Option<(f64, f64, f64, &'static str, Rectangle)> = None;
        for (dx, dy, anchor) in [
            (11.0, 4.5, "start"),
            (-11.0, 4.5, "end"),
            (0.0, -12.0, "middle"),
            (0.0, 20.0, "middle"),
            (9.0, -7.0, "start"),
            (9.0, 16.0, "start"),
            (-9.0, -7.0, "end"),
            (-9.0, 16.0, "end"),
            (11.0, -18.0, "start"),
            (11.0, 27.0, "start"),
        ] {
            let (x, y) = (point.x + dx, point.y + dy);
            let left = match anchor {
                "start" => x,
                "end" => x - width,
                _ => x - width / 2.0,
            };
            let label = Rectangle { left, top: y - LABEL_PIXELS + 3.0, right: left + width, bottom: y + 3.0 };
            let area = width * LABEL_PIXELS;
            let outside = area - label.shared_with(&frame);
            let others = dots.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, dot)| dot);
            let covered: f64 = others.chain(&taken).map(|other| label.shared_with(other)).sum();
            let cost = covered + outside * 4.0;
            if best.as_ref().is_none_or(|(least, ..)| cost < *least - 0.5) {
                best = Some((cost, x, y, anchor, label));
            }
        }
        if let Some((_, x, y, anchor, label)) = best {
            (points[at].label_x, points[at].label_y, points[at].anchor) = (tenth(x), tenth(y), anchor);
            taken.push(label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::html::marks::marks;
    use crate::bench::html::sample;

    /// The name of the axis stands at 12, upright, and is as wide as a letter is high.
    #[test]
    fn the_numbers_of_an_axis_leave_room_for_its_name() {
        const NAME_RIGHT: f64 = 12.0 + 6.0;
        let mut results = sample::made_up(3, 2, 5, 1);
        for (at, summary) in results.summary.iter_mut().enumerate() {
            (summary.time_over_best, summary.peak_over_best) = (Some(1.5), Some(1.0 + 0.08 * at as f64));
        }
        for map in maps(&results, &marks(&results)) {
            assert!(map.y_ticks.iter().any(|tick| tick.label.len() > 3), "1.02");
            for tick in &map.y_ticks {
                let left = map.left - 6.0 - tick.label.len() as f64 * LETTER_PIXELS;
                assert!(left >= NAME_RIGHT, "{} is at {left}", tick.label);
            }
        }
    }
}
