//! scale.rs - where a ratio stands on a logarithmic axis that starts at 1.

use crate::bench::words;
use serde::Serialize;

/// Nothing is drawn further out than this, whatever was measured.
const RATIO_MAX: f64 = 1e6;

#[derive(Debug, Serialize)]
pub struct Tick {
    /// In percent of the plot's width.
    pub x: f64,
    pub label: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub max: f64,
    /// Where 1 and max stand, in percent.
    from: f64,
    to: f64,
    /// Where marks beyond max stand, if there are any.
    beyond: Option<f64>,
}

impl Scale {
    /// An axis up to `max` at least, between `from` and `to` percent.
    pub fn new(max: f64, from: f64, to: f64) -> Scale {
        Scale { max: max.clamp(1.05, RATIO_MAX), from, to, beyond: None }
    }

    /// For strips of marks: as wide as nearly all of `ratios` need, and as all of `always` need; what lies further out
    /// has a place of its own at the right.
    pub fn for_strips(ratios: &[f64], always: &[f64]) -> Scale {
        let mut sorted: Vec<f64> = ratios.iter().copied().filter(|ratio| ratio.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let largest = sorted.last().copied().unwrap_or(1.0);
        let nearly = sorted.get(sorted.len() * 93 / 100).copied().unwrap_or(1.0);
        let always = always.iter().copied().filter(|ratio| ratio.is_finite()).fold(1.0, f64::max);
        let wanted = nearly.max(always).max(1.1) * 1.02;
        // A few percent more than wanted are not worth a second place.
        if largest <= wanted * 1.3 {
            return Scale::new(largest.max(wanted), 5.0, 96.0);
        }
        Scale { beyond: Some(97.0), ..Scale::new(wanted, 5.0, 90.0) }
    }

    /// In percent. Below 1 a mark or a whisker ends at the left edge.
    pub fn x(&self, ratio: f64) -> f64 {
        if let Some(beyond) = self.beyond.filter(|_| self.is_beyond(ratio)) {
            return beyond;
        }
        let share = ratio.clamp(1e-9, self.max).ln() / self.max.ln();
        tenth((self.from + (self.to - self.from) * share).clamp(0.0, 100.0))
    }

    pub fn is_beyond(&self, ratio: f64) -> bool {
        ratio > self.max
    }

    /// Where the place of the others begins.
    pub fn border(&self) -> Option<f64> {
        self.beyond.map(|beyond| beyond - 3.5)
    }

    /// The first one is 1.
    pub fn ticks(&self) -> Vec<Tick> {
        let ticks: &[f64] = match self.max {
            max if max < 1.12 => &[1.0, 1.02, 1.04, 1.06, 1.08, 1.1],
            max if max < 1.35 => &[1.0, 1.05, 1.1, 1.15, 1.2, 1.3],
            max if max < 1.8 => &[1.0, 1.1, 1.2, 1.3, 1.5, 1.7],
            max if max < 3.0 => &[1.0, 1.2, 1.5, 2.0, 2.5],
            max if max < 6.0 => &[1.0, 1.25, 1.5, 2.0, 3.0, 4.0],
            max if max < 16.0 => &[1.0, 1.5, 2.0, 3.0, 5.0, 10.0],
            max if max < 60.0 => &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0],
            max if max < 300.0 => &[1.0, 2.0, 5.0, 10.0, 30.0, 100.0],
            _ => &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6],
        };
        // The place of the others has a label too.
        let x_max = if self.beyond.is_some() { self.to - 4.0 } else { 100.0 };
        let ticks = ticks.iter().filter(|tick| **tick <= self.max && self.x(**tick) <= x_max);
        ticks.map(|tick| Tick { x: self.x(*tick), label: label(*tick) }).collect()
    }
}

fn label(tick: f64) -> String {
    match tick {
        _ if tick >= 10.0 => words::digits(tick).trim_end_matches(".0").to_owned(),
        _ => format!("{tick}"),
    }
}

/// A tenth of a percent is less than a pixel.
pub fn tenth(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_left_and_the_largest_is_right() {
        let scale = Scale::for_strips(&[1.0, 2.0, 4.0], &[]);
        assert_eq!(scale.x(1.0), 5.0);
        assert!(scale.x(4.0) > 94.0 && !scale.is_beyond(4.0) && scale.border().is_none());
        assert!(scale.x(2.0) > 40.0 && scale.x(2.0) < 60.0, "the axis is logarithmic");
        assert_eq!(scale.x(0.0), 0.0);
        assert_eq!(scale.ticks()[0].label, "1");
    }

    #[test]
    fn a_lone_outlier_does_not_squeeze_the_rest() {
        let mut ratios = vec![1.5; 99];
        ratios.push(400.0);
        let scale = Scale::for_strips(&ratios, &[]);
        assert!(scale.max < 2.0 && scale.is_beyond(400.0) && scale.x(400.0) == 97.0);
        assert!(scale.border().unwrap() > scale.x(1.5));
        // Unless it is HAKMEM's own: that is never put aside.
        assert!(Scale::for_strips(&ratios, &[400.0]).max > 400.0);
    }

    #[test]
    fn every_axis_has_some_ticks_and_odd_numbers_do_no_harm() {
        for max in [1.0, 1.1, 1.2, 1.5, 2.0, 4.0, 9.0, 40.0, 200.0, 5e3, 1e12, f64::NAN, f64::INFINITY] {
            let scale = Scale::for_strips(&[1.0, max], &[max]);
            let ticks = scale.ticks();
            assert!(ticks.len() >= 2, "{max}: {ticks:?}");
            assert!(ticks.iter().all(|tick| (0.0..=100.0).contains(&tick.x)), "{max}: {ticks:?}");
        }
        assert!(Scale::for_strips(&[], &[]).ticks().len() >= 2);
    }
}
