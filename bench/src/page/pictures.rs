//! Pictures of the results: bars of ratios, and lines of growth. Both scales are logarithmic.

use std::fmt::Write as _;

use super::tables::{best_peer, is_peer};
use super::words::ratio;
use crate::goals::{self, Family};
use crate::row::RowResult;

const WIDTH: f64 = 800.0;
const STYLE: &str = "<style>text{font:12px sans-serif;fill:#444}.own{fill:#2a7f62}.less{fill:#b5543a}\
                     .axis{stroke:#999;stroke-width:1}.line{fill:none;stroke-width:2}</style>";
const COLOURS: [&str; 6] = ["#2a7f62", "#b5543a", "#3a6fb5", "#8a5fb0", "#b08a2a", "#555555"];

/// Bars: the time of each row's best peer by vlinder's.
pub fn ratios(results: &[RowResult]) -> String {
    const LABELS: f64 = 280.0;
    const STEP: f64 = 18.0;
    let rows = goals::GOALS.iter().filter(|goal| goal.family != Family::Growth);
    let rows: Vec<(&str, &str, f64)> = rows
        .filter_map(|goal| {
            let result = results.iter().find(|result| result.id == goal.id)?;
            Some((goal.id, goal.title, best_peer(goal, result)?.ratio))
        })
        .collect();
    let farthest = |farthest: f64, ratio: f64| farthest.max(ratio.ln().abs());
    let most = rows.iter().map(|row| row.2).fold(1.0, farthest);
    let least = rows.iter().map(|row| row.2.ln()).fold(0.0, f64::min);
    let room = WIDTH - LABELS - 70.0;
    let scale = room / (most - least);
    let zero = LABELS - least * scale;
    let height = 30.0 + STEP * count(rows.len());
    let mut picture = begin(height, "Times of the best peers by those of vlinder");
    let _ = write!(picture, "<text x=\"{zero:.0}\" y=\"12\" text-anchor=\"middle\">equal</text>");
    for (number, (id, title, factor)) in rows.iter().enumerate() {
        let top = 20.0 + STEP * count(number);
        let length = factor.ln() * scale;
        let (left, class) = if length < 0.0 { (zero + length, "less") } else { (zero, "own") };
        let (width, base) = (length.abs().max(1.0), top + 11.0);
        let title = title.replace('`', "");
        let _ = write!(picture, "<text x=\"0\" y=\"{base:.0}\">{id}  {title}</text>");
        let _ = write!(
            picture,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.0}\" width=\"{width:.1}\" height=\"13\"/>"
        );
        let end = zero.max(left + width) + 5.0;
        let _ = write!(picture, "<text x=\"{end:.1}\" y=\"{base:.0}\">{}</text>", ratio(*factor));
    }
    let _ = write!(picture, "<path class=\"axis\" d=\"M{zero:.1} 16V{height:.0}\"/>");
    picture + "</svg>\n"
}

/// Lines: the time for one item, by the number of items, against that of the smallest number.
pub fn growth(results: &[RowResult]) -> String {
    const LEFT: f64 = 60.0;
    const TOP: f64 = 20.0;
    const HEIGHT: f64 = 260.0;
    const KEY: f64 = 330.0;
    let lines: Vec<(String, Vec<(f64, f64)>)> = results.iter().filter_map(of_growth).collect();
    let points = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let (from, to) = bounds(points().map(|point| point.0));
    let (least, most) = bounds(points().map(|point| point.1).chain([0.1, 10.0]));
    let x = |size: f64| LEFT + (size / from).ln() / (to / from).ln() * (WIDTH - LEFT - KEY);
    let y = |time: f64| TOP + (most / time).ln() / (most / least).ln() * HEIGHT;
    let mut picture = begin(TOP + HEIGHT + 30.0, "Time for each item, by the number of items");
    let (right, bottom) = (WIDTH - KEY, TOP + HEIGHT);
    let _ = write!(picture, "<path class=\"axis\" fill=\"none\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>");
    for exponent in exponents(from, to) {
        let (at, base) = (x(10f64.powi(exponent)), bottom + 16.0);
        let _ =
            write!(picture, "<text x=\"{at:.1}\" y=\"{base}\" text-anchor=\"middle\">10^{exponent}</text>");
    }
    for exponent in exponents(least, most) {
        let at = y(10f64.powi(exponent));
        let shown = 10f64.powi(exponent);
        let _ = write!(
            picture,
            "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">× {shown}</text>",
            LEFT - 6.0,
            at + 4.0
        );
        let _ =
            write!(picture, "<path class=\"axis\" stroke-dasharray=\"2 4\" d=\"M{LEFT} {at:.1}H{right}\"/>");
    }
    for (number, ((name, points), colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let path: Vec<String> =
            points.iter().map(|(size, time)| format!("{:.1} {:.1}", x(*size), y(*time))).collect();
        let _ = write!(picture, "<path class=\"line\" stroke=\"{colour}\" d=\"M{}\"/>", path.join("L"));
        let base = TOP + 12.0 + 18.0 * count(number);
        let _ = write!(
            picture,
            "<text x=\"{:.0}\" y=\"{base:.0}\" style=\"fill:{colour}\">{name}</text>",
            right + 15.0
        );
    }
    picture + "</svg>\n"
}

/// A row of growth: its name, and for each size the time of one item, in that of the smallest size.
fn of_growth(result: &RowResult) -> Option<(String, Vec<(f64, f64)>)> {
    let goal = goals::of(&result.id).filter(|goal| goal.family == Family::Growth)?;
    let sides = result.sides.iter().filter(|side| !is_peer(side));
    let sizes: Vec<(f64, f64)> =
        sides.filter_map(|side| Some((size(&side.name)?, side.median_seconds))).collect();
    // What is done the same number of times in small and large file systems is no item of these.
    let is_by_size = goal.id != "G3S" && !sizes.is_empty();
    let per_item = |(size, time): (f64, f64)| if has_fixed_work(goal.id) { time } else { time / size };
    let first = per_item(*sizes.first()?);
    let points = sizes.iter().map(|point| (point.0, per_item(*point) / first)).collect();
    is_by_size.then(|| (format!("{} {}", goal.id, goal.title), points))
}

/// Whether the row does the same work whatever the size is.
fn has_fixed_work(id: &str) -> bool {
    ["G1", "G2", "G3", "G3L"].contains(&id)
}

/// The number in a side's name.
fn size(name: &str) -> Option<f64> {
    let digits: String = name
        .chars()
        .skip_while(|character| !character.is_ascii_digit())
        .take_while(|character| character.is_ascii_digit() || *character == ',')
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)))
}

/// The powers of ten between two numbers.
fn exponents(from: f64, to: f64) -> impl Iterator<Item = i32> {
    (-3..12).filter(move |exponent| (from * 0.99..=to * 1.01).contains(&10f64.powi(*exponent)))
}

#[expect(clippy::cast_precision_loss, reason = "a number of rows")]
fn count(number: usize) -> f64 {
    number as f64
}

fn begin(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH:.0} {height:.0}\" role=\"img\">\
         <title>{title}</title>{STYLE}<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_out_of_names() {
        assert_eq!((size("in 1,000,000 files"), size("10"), size("cold")), (Some(1e6), Some(10.0), None));
    }

    #[test]
    fn a_slower_row_reaches_to_the_left() {
        let stored = r#"{"id": "F1", "workload": "", "goal": "", "commit": "", "command": "", "files": 7, "sides": [
            {"name": "vlinder mount", "seconds": [1.0], "median_seconds": 1.0, "peak_bytes": 0, "ratio": 1.0},
            {"name": "kernel", "seconds": [0.5], "median_seconds": 0.5, "peak_bytes": 0, "ratio": 0.5}]}"#;
        let picture = ratios(&[serde_json::from_str(stored).unwrap()]);
        assert!(picture.contains("class=\"less\"") && picture.contains("× 0.50"), "{picture}");
    }
}
