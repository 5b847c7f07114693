//! Plots as SVG that stands in a page: no script, no font, no file of their own. Colours come from
//! the page, by class, so that it can be light or dark.

use std::fmt::Write;

/// A row of a plot: a name, and what is drawn below it.
pub(super) struct Line {
    pub(super) name: String,
    /// How it is coloured.
    pub(super) class: &'static str,
    /// Where the bar ends, or where dots are; none if there is nothing to draw.
    pub(super) marks: Vec<f64>,
    /// From where to where the value has been seen.
    pub(super) spread: Option<(f64, f64)>,
    /// What stands at the end of the name's line.
    pub(super) text: String,
}

/// A point of a plane.
pub(super) struct Point {
    /// What stands in it.
    pub(super) mark: String,
    pub(super) class: &'static str,
    pub(super) x: f64,
    pub(super) y: f64,
    /// What it is, for who points at it.
    pub(super) title: String,
}

/// From values to places along an axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
    /// A value as people read it.
    text: fn(f64) -> String,
}

impl Axis {
    /// From zero.
    pub(super) fn linear(values: impl IntoIterator<Item = f64>, text: fn(f64) -> String) -> Self {
        let greatest = values.into_iter().fold(0.0, f64::max);
        let high = if greatest > 0.0 { greatest } else { 1.0 };
        Self { low: 0.0, high, is_log: false, text }
    }

    /// Over whole decades.
    pub(super) fn log(values: impl IntoIterator<Item = f64>, text: fn(f64) -> String) -> Self {
        let positive = values.into_iter().filter(|value| *value > 0.0);
        let (least, greatest) = positive
            .fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| {
                (least.min(value), greatest.max(value))
            });
        if greatest == 0.0 {
            return Self { low: 1.0, high: 10.0, is_log: true, text };
        }
        let low = 10_f64.powf(least.log10().floor());
        let high = 10_f64.powf(greatest.log10().ceil()).max(low * 10.0);
        Self { low, high, is_log: true, text }
    }

    /// Where a value stands, as a part of the axis.
    fn place(&self, value: f64) -> f64 {
        let part = match self.is_log {
            true => (value.max(self.low) / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        };
        part.clamp(0.0, 1.0)
    }

    /// The values that are marked: round ones, a few.
    fn ticks(&self) -> Vec<f64> {
        if self.is_log {
            let decades = (self.high / self.low).log10().round() as i32;
            return (0..=decades).map(|decade| self.low * 10_f64.powi(decade)).collect();
        }
        let rough = self.high / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        (0..=(self.high / step).floor() as u32).map(|tick| f64::from(tick) * step).collect()
    }
}

/// How lines are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A bar from the start of the axis to the mark.
    Bar,
    /// A dot for each mark, joined.
    Dots,
}

/// A plot of lines, one below the other; `title` says what it shows to who can not see it.
pub(super) fn lines(title: &str, lines: &[Line], axis: Axis, shape: Shape) -> String {
    let height = lines.len() as f64 * LINE_HEIGHT;
    let mut svg = open(title, height + AXIS_HEIGHT);
    for tick in axis.ticks() {
        let (x, text) = (x_of(axis, tick), (axis.text)(tick));
        let _ = write!(svg, r#"<path class="grid" d="M{x:.1} 0V{height}"/>"#);
        let (at, below) = (anchor(x), height + 16.0);
        let _ = write!(svg, r#"<text class="tick {at}" x="{x:.1}" y="{below}">{text}</text>"#);
    }
    for (place, line) in lines.iter().enumerate() {
        let top = place as f64 * LINE_HEIGHT;
        draw(&mut svg, line, axis, shape, top);
    }
    svg + "</svg>"
}

fn draw(svg: &mut String, line: &Line, axis: Axis, shape: Shape, top: f64) {
    let Line { name, class, marks, spread, text } = line;
    let (base, middle) = (top + 13.0, top + 24.0);
    let (name, text) = (escaped(name), escaped(text));
    let _ = write!(svg, r#"<text x="{LEFT}" y="{base}">{name}</text>"#);
    let _ = write!(svg, r#"<text class="end" x="{RIGHT}" y="{base}">{text}</text>"#);
    let places: Vec<f64> = marks.iter().map(|mark| x_of(axis, *mark)).collect();
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return };
    let _ = match shape {
        Shape::Bar => write!(
            svg,
            r#"<rect class="{class}" x="{LEFT}" y="{}" width="{:.1}" height="12" rx="2"/>"#,
            middle - 6.0,
            (last - LEFT).max(1.0)
        ),
        Shape::Dots => {
            write!(svg, r#"<path class="{class} joint" d="M{first:.1} {middle}H{last:.1}"/>"#)
        }
    };
    if let Some((low, high)) = spread {
        let (low, high) = (x_of(axis, *low), x_of(axis, *high));
        let (above, below) = (middle - 4.0, middle + 4.0);
        let _ = write!(
            svg,
            r#"<path class="spread" d="M{low:.1} {above}V{below}M{low:.1} {middle}H{high:.1}"#
        );
        let _ = write!(svg, r#"M{high:.1} {above}V{below}"/>"#);
    }
    if shape == Shape::Dots {
        for (number, x) in places.iter().enumerate() {
            let radius = 5.0 - number as f64 * 0.7;
            let _ =
                write!(svg, r#"<circle class="{class}" cx="{x:.1}" cy="{middle}" r="{radius}"/>"#);
        }
    }
}

/// A plot of points. Those that would cover one another stand side by side; on the line of zero one
/// below the other, where nothing else can be.
pub(super) fn plane(title: &str, points: &[Point], x_axis: Axis, y_axis: Axis) -> String {
    let mut svg = open(title, PLANE_HEIGHT + AXIS_HEIGHT);
    let (left, top) = (PLANE_LEFT, 10.0);
    let x_of = |value: f64| left + x_axis.place(value) * (RIGHT - 12.0 - left);
    let y_of = |value: f64| top + (1.0 - y_axis.place(value)) * (PLANE_HEIGHT - top - BELOW_ZERO);
    for tick in x_axis.ticks() {
        let (x, text) = (x_of(tick), (x_axis.text)(tick));
        let _ = write!(svg, r#"<path class="grid" d="M{x:.1} {top}V{PLANE_HEIGHT}"/>"#);
        let below = PLANE_HEIGHT + 16.0;
        let _ = write!(svg, r#"<text class="tick middle" x="{x:.1}" y="{below}">{text}</text>"#);
    }
    for tick in y_axis.ticks() {
        let (y, text) = (y_of(tick), (y_axis.text)(tick));
        let _ = write!(svg, r#"<path class="grid" d="M{left} {y:.1}H{RIGHT}"/>"#);
        let (before, base) = (left - 6.0, y + 4.0);
        let _ = write!(svg, r#"<text class="tick end" x="{before}" y="{base:.1}">{text}</text>"#);
    }
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for Point { mark, class, x, y, title } in points {
        let step = if *y > 0.0 { (DOT, 0.0) } else { (0.0, DOT) };
        let (mut x, mut y) = (x_of(*x), y_of(*y));
        while taken.iter().any(|(tx, ty)| (tx - x).abs() < DOT && (ty - y).abs() < DOT) {
            (x, y) = (x + step.0, y + step.1);
        }
        taken.push((x, y));
        let base = y + 4.0;
        let _ = write!(
            svg,
            r#"<g class="{class} point"><title>{}</title><circle cx="{x:.1}" cy="{y:.1}" r="9"/>"#,
            escaped(title)
        );
        let _ = write!(
            svg,
            r#"<text class="middle" x="{x:.1}" y="{base:.1}">{}</text></g>"#,
            escaped(mark)
        );
    }
    svg + "</svg>"
}

fn open(title: &str, height: f64) -> String {
    let title = escaped(title);
    let svg = format!(r#"<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">"#);
    svg + "<title>" + &title + "</title>"
}

fn x_of(axis: Axis, value: f64) -> f64 {
    LEFT + axis.place(value) * (RIGHT - LEFT)
}

/// On which side of `x` a text stands: at the edge of the plot it must not be cut off.
fn anchor(x: f64) -> &'static str {
    match x {
        x if x < LEFT + 12.0 => "start",
        x if x > RIGHT - 12.0 => "end",
        _ => "middle",
    }
}

/// A text as it stands in a page.
pub(super) fn escaped(text: &str) -> String {
    let replaced = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    replaced.replace('"', "&quot;")
}

/// So wide that letters are as large as those of the page where a plot is as wide as a telephone.
const WIDTH: f64 = 420.0;
const LEFT: f64 = 2.0;
const RIGHT: f64 = WIDTH - 2.0;
const LINE_HEIGHT: f64 = 36.0;
const AXIS_HEIGHT: f64 = 22.0;
const PLANE_HEIGHT: f64 = 240.0;
const PLANE_LEFT: f64 = 48.0;
/// Room for points that have nothing.
const BELOW_ZERO: f64 = 76.0;
/// Points nearer than this would cover one another.
const DOT: f64 = 18.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: f64) -> String {
        value.to_string()
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_has_a_few_round_ticks() {
        let axis = Axis::linear([310.0, 90.0], text);
        assert_eq!(axis.ticks(), [0.0, 100.0, 200.0, 300.0]);
        assert_eq!((axis.place(0.0), axis.place(155.0), axis.place(310.0)), (0.0, 0.5, 1.0));
        assert_eq!(Axis::linear([], text).ticks(), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn a_log_axis_covers_whole_decades_and_takes_zero_for_its_least() {
        let axis = Axis::log([2.5, 180.0, 0.0], text);
        assert_eq!(axis.ticks(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((axis.place(10.0) - 1.0 / 3.0).abs() < 1e-9);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 1.0));
        assert_eq!(Axis::log([], text).ticks(), [1.0, 10.0]);
    }

    #[test]
    fn what_a_text_holds_is_no_markup() {
        let line = Line {
            name: "a<b".to_owned(),
            class: "one",
            marks: Vec::new(),
            spread: None,
            text: "\"&\"".to_owned(),
        };
        let svg = lines("t", &[line], Axis::linear([1.0], text), Shape::Bar);
        assert!(svg.contains("a&lt;b") && svg.contains("&quot;&amp;&quot;"), "{svg}");
        assert!(!svg.contains("<rect"), "nothing is drawn of nothing: {svg}");
    }
}
