//! CSV with one line per policy, configuration, load and seed.

use std::io::{self, Write};

use super::{FIGURES, SimulationReport};
use crate::report::csv::escaped;

impl SimulationReport {
    /// One line per policy and seed; the columns of a sweep come after the common ones.
    pub(in crate::cmd::lab::simulate) fn csv(&self, out: impl Write) -> io::Result<()> {
        let mut out = io::BufWriter::new(out);
        write!(out, "policy,seed,requests,errors")?;
        for figure in &FIGURES {
            write!(out, ",{}", figure.name)?;
        }
        let is_sweep = !self.header.axes.is_empty() || self.has_loads();
        if is_sweep {
            write!(out, ",time_scale,requests_per_s")?;
            for path in &self.header.axes {
                write!(out, ",{}", escaped(path))?;
            }
        }
        writeln!(out)?;
        for row in &self.rows {
            for (seed, run) in self.header.seeds.iter().zip(&row.runs) {
                let name = escaped(&row.policy);
                write!(out, "{name},{seed},{},{}", run.summary.requests, run.summary.errors)?;
                for figure in &FIGURES {
                    match (figure.read)(run) {
                        Some(value) => write!(out, ",{value:.6}")?,
                        None => write!(out, ",")?,
                    }
                }
                // Only a sweep has these columns, so that the file of a plain comparison keeps its form.
                if let Some(place) = self.place(row).filter(|_| is_sweep) {
                    write!(out, ",{},", place.time_scale)?;
                    if let Some(rate) = place.requests_per_s {
                        write!(out, "{rate:.6}")?;
                    }
                    for (_, value) in self.swept(row) {
                        write!(out, ",{}", escaped(value.unwrap_or_default()))?;
                    }
                }
                writeln!(out)?;
            }
        }
        out.flush()
    }
}
