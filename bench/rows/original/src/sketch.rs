//! A sketch of the quantiles of texts, as the original makes of each row key.
//!
//! It is the classic mergeable sketch, with the original's K of 1,024: values are collected until
//! there are 2K, sorted, and every other one is kept. K values of level n stand for 2^(n+1) values
//! each; two lots of one level are merged, and every other value goes to the next.

use std::mem;

const K: usize = 1024;

pub struct Sketch {
    rows: u64,
    /// The latest values, in no order. The room of texts that are dropped is used again.
    base: Vec<String>,
    filled: usize,
    levels: Vec<Vec<String>>,
    spare: Vec<String>,
    chance: u64,
}

impl Sketch {
    pub fn new() -> Self {
        Self {
            rows: 0,
            base: vec![String::new(); 2 * K],
            filled: 0,
            levels: Vec::new(),
            spare: Vec::new(),
            chance: 0x9E37_79B9_7F4A_7C15,
        }
    }

    /// Adds one value.
    pub fn update(&mut self, value: &str) {
        let slot = &mut self.base[self.filled];
        slot.clear();
        slot.push_str(value);
        self.rows += 1;
        self.filled += 1;
        if self.filled == 2 * K {
            self.halve_base();
        }
    }

    /// Returns how many values were added.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns about the value below which `fraction` of all values are; none without values.
    pub fn quantile(&self, fraction: f64) -> Option<&str> {
        let mut weighted: Vec<(&str, u64)> = self.base[..self.filled]
            .iter()
            .map(|value| (value.as_str(), 1))
            .collect();
        for (level, values) in self.levels.iter().enumerate() {
            weighted.extend(values.iter().map(|value| (value.as_str(), 2 << level)));
        }
        weighted.sort_unstable();
        let wanted = (fraction * self.rows as f64) as u64;
        let mut below = 0;
        for (value, weight) in &weighted {
            below += weight;
            if below > wanted {
                return Some(value);
            }
        }
        weighted.last().map(|(value, _)| *value)
    }

    fn halve_base(&mut self) {
        self.base.sort_unstable();
        let first = self.coin();
        let mut kept = Vec::with_capacity(K);
        for slot in self.base.iter_mut().skip(first).step_by(2) {
            kept.push(mem::replace(slot, self.spare.pop().unwrap_or_default()));
        }
        self.filled = 0;
        self.carry(kept);
    }

    /// Puts K values into the first level that is free, and merges those of the levels before it.
    fn carry(&mut self, mut kept: Vec<String>) {
        for level in 0.. {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            let there = mem::take(&mut self.levels[level]);
            if there.is_empty() {
                self.levels[level] = kept;
                return;
            }
            kept = self.merged(kept, there);
        }
    }

    /// Returns every other value of two sorted lots.
    fn merged(&mut self, left: Vec<String>, right: Vec<String>) -> Vec<String> {
        let mut wanted = self.coin() == 0;
        let mut kept = Vec::with_capacity(K);
        let (mut left, mut right) = (left.into_iter().peekable(), right.into_iter().peekable());
        loop {
            let value = match (left.peek(), right.peek()) {
                (Some(one), Some(other)) if one <= other => left.next(),
                (_, Some(_)) => right.next(),
                (_, None) => left.next(),
            };
            let Some(value) = value else { return kept };
            let lot = if wanted { &mut kept } else { &mut self.spare };
            lot.push(value);
            wanted = !wanted;
        }
    }

    /// Returns 0 or 1 by chance, the same in each run.
    fn coin(&mut self) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance & 1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::Sketch;

    #[test]
    fn quantiles_are_close_whatever_the_order() {
        let ascending: Vec<u64> = (0..1_000_000).collect();
        let scattered: Vec<u64> = ascending.iter().map(|i| i * 7_919 % 1_000_000).collect();
        for values in [ascending, scattered] {
            let mut sketch = Sketch::new();
            for value in values {
                sketch.update(&format!("{value:06}"));
            }
            assert_eq!(sketch.rows(), 1_000_000);
            for tenth in 1..10 {
                let fraction = f64::from(tenth) / 10.0;
                let found: f64 = sketch.quantile(fraction).unwrap().parse().unwrap();
                assert!(
                    (found / 1e6 - fraction).abs() < 0.01,
                    "{found} at {fraction}"
                );
            }
        }
    }

    #[test]
    fn a_few_values_are_exact_and_none_have_no_quantile() {
        let mut sketch = Sketch::new();
        assert_eq!(sketch.quantile(0.5), None);
        for value in ["c", "a", "b"] {
            sketch.update(value);
        }
        assert_eq!(sketch.quantile(0.5), Some("b"));
    }
}
