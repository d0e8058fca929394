//! The learning curve as a picture: a dot for each episode, and the mean of the last hundred as a line (SVG
//! 1.1).

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;

use crate::actor::Episode;
use crate::cart_pole::MAX_STEPS;
use crate::training::{SOLVED, WINDOW};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 400.0;
/// Around the plot, for the numbers.
const MARGIN: f64 = 50.0;
/// Of the dots, one for each actor in turn (Okabe and Ito: told apart also by those who do not see all
/// colours).
const COLOURS: [&str; 8] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999"];

/// The episodes, in the order in which they ended.
#[derive(Debug)]
pub(crate) struct Curve<'a> {
    episodes: &'a [Episode],
}

impl<'a> Curve<'a> {
    pub(crate) fn new(episodes: &'a [Episode]) -> Self {
        Self { episodes }
    }

    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        std::fs::write(path, self.draw()?).with_context(|| format!("cannot write {}", path.display()))
    }

    /// From left to right.
    fn x(&self, n_episodes: usize) -> f64 {
        MARGIN + (WIDTH - 2.0 * MARGIN) * n_episodes as f64 / self.episodes.len().max(1) as f64
    }

    fn draw(&self) -> Result<String, std::fmt::Error> {
        let mut svg = String::new();
        writeln!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">"##
        )?;
        writeln!(svg, r#"<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>"#)?;
        self.axes(&mut svg)?;
        for (i, episode) in self.episodes.iter().enumerate() {
            let (x, y) = (self.x(i + 1), y(episode.reward as f64));
            let colour = COLOURS[episode.rank % COLOURS.len()];
            writeln!(svg, r#"<circle cx="{x:.1}" cy="{y:.1}" r="1.8" fill="{colour}" fill-opacity="0.6"/>"#)?;
        }
        write!(svg, r#"<polyline fill="none" stroke="black" stroke-width="1.5" points=""#)?;
        for end in 1..=self.episodes.len() {
            let last = &self.episodes[end.saturating_sub(WINDOW)..end];
            let mean = last.iter().map(|episode| episode.reward as f64).sum::<f64>() / last.len() as f64;
            write!(svg, "{:.1},{:.1} ", self.x(end), y(mean))?;
        }
        writeln!(svg, "\"/>\n</svg>")?;
        Ok(svg)
    }

    /// The axes with their numbers, and the mean at which the problem is solved.
    fn axes(&self, svg: &mut String) -> std::fmt::Result {
        let (left, right) = (MARGIN, WIDTH - MARGIN);
        for reward in (0..=MAX_STEPS).step_by(50) {
            let y = y(reward as f64);
            writeln!(svg, r##"<path d="M{left} {y:.1}H{right}" stroke="#dddddd"/>"##)?;
            writeln!(
                svg,
                r#"<text x="{}" y="{:.1}" text-anchor="end">{reward}</text>"#,
                left - 6.0,
                y + 4.0
            )?;
        }
        for quarter in 0..=4 {
            let n_episodes = self.episodes.len() * quarter / 4;
            let x = self.x(n_episodes);
            writeln!(
                svg,
                r#"<text x="{x:.1}" y="{}" text-anchor="middle">{n_episodes}</text>"#,
                HEIGHT - 32.0
            )?;
        }
        let solved = y(SOLVED);
        writeln!(
            svg,
            r##"<path d="M{left} {solved:.1}H{right}" stroke="#d55e00" stroke-dasharray="6 4"/>
<text x="{right}" y="{:.1}" text-anchor="end" fill="#d55e00">solved: mean {SOLVED}</text>
<text x="{}" y="{}" text-anchor="middle">episodes</text>
<text x="{left}" y="{}">reward of each episode (one colour for each actor), and the mean of the last {WINDOW}</text>"##,
            solved - 16.0,
            WIDTH / 2.0,
            HEIGHT - 12.0,
            MARGIN - 32.0,
        )
    }
}

/// From the bottom to the top.
fn y(reward: f64) -> f64 {
    HEIGHT - MARGIN - (HEIGHT - 2.0 * MARGIN) * reward / MAX_STEPS as f64
}
