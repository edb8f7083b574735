//! A self-contained HTML file: a table and plots, no script, nothing fetched. Light or dark as the reader's system is.
//! The plots are drawn here because their colours must follow that: they are CSS classes, and a plotting crate writes
//! fixed ones.

use std::fmt::Write as _;

/// Contents of a page, from top to bottom.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct HtmlPage {
    pub(crate) title: String,
    /// Name and value of everything that the runs were made with.
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) plots: Vec<PagePlot>,
    pub(crate) tables: Vec<PageTable>,
    /// Lines below the tables.
    pub(crate) notes: Vec<String>,
}

/// A plot with its caption.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PagePlot {
    pub(crate) title: String,
    /// Explanation for the reader.
    pub(crate) note: String,
    /// SVG text.
    pub(crate) svg: String,
}

/// A table whose first column is text.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PageTable {
    pub(crate) title: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// Highlighted row.
    pub(crate) marked: Option<usize>,
    pub(crate) note: String,
}

/// Style sheet. Colours are pairs, light and dark; those of the series can also be told apart with impaired colour
/// vision.
const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fcfcfb;--card:#fff;--ink:#1d1d1b;--soft:#62615d;--line:#dedcd6;--mark:#fff4d6;
--s0:#2a6fc9;--s1:#c4560f;--s2:#16846a;--s3:#8a4fbf;--s4:#b8860b;--s5:#c23b6b;--s6:#4a7a1e;--s7:#5b6470}
@media(prefers-color-scheme:dark){:root{--bg:#161615;--card:#1f1f1d;--ink:#ecebe7;--soft:#a3a19a;--line:#3a3936;
--mark:#3b3218;--s0:#6ea8f2;--s1:#f08a45;--s2:#45c4a3;--s3:#bd92e8;--s4:#e0b341;--s5:#f07ba2;--s6:#93c65c;--s7:#a9b2bd}}
*{box-sizing:border-box}
body{margin:0 auto;padding:2rem 1.25rem 3rem;max-width:72rem;background:var(--bg);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 1rem;overflow-wrap:anywhere}h2{font-size:1.05rem;margin:0 0 .25rem}
p{margin:0 0 .75rem;color:var(--soft)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:0 0 1.5rem}
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}
section{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:1rem 1.1rem;margin:0 0 1.25rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px;white-space:nowrap}
th,td{padding:.28rem .45rem;text-align:right;vertical-align:top;border-bottom:1px solid var(--line)}
th{font-weight:600;color:var(--soft)}th:first-child,td:first-child{text-align:left}
tr:last-child td{border-bottom:0}tr.marked td{background:var(--mark)}
td small{display:block;font-size:11px;line-height:1.1;color:var(--soft)}
ul{margin:0;padding-left:1.2rem;color:var(--soft);font-size:13px}
code{font:13px/1.45 ui-monospace,'DejaVu Sans Mono',Menlo,monospace;overflow-wrap:anywhere}
svg{display:block;width:100%;min-width:620px;height:auto}
svg text{font-size:12px;fill:var(--ink)}svg .soft{fill:var(--soft)}svg .marked{font-weight:700}
svg .over{paint-order:stroke;stroke:var(--card);stroke-width:3px;stroke-linejoin:round}
svg .end{text-anchor:end}svg .mid{text-anchor:middle}
svg .grid{stroke:var(--line);stroke-width:1}svg .axis{stroke:var(--soft);stroke-width:1}
svg .limit{stroke:var(--ink);stroke-width:1;stroke-dasharray:5 4}
svg .band{fill:var(--mark)}svg .span{stroke:var(--soft);stroke-width:1.5;opacity:.55}
svg .halo{stroke:var(--card);stroke-width:1.5}
";

impl HtmlPage {
    /// The file's text.
    pub(crate) fn html(&self) -> String {
        let title = escaped(&self.title);
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta name=\"viewport\" \
             content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n<style>{STYLE}{}</style></head>\n\
             <body>\n<h1>{title}</h1>\n<dl>\n",
            series_style()
        );
        for (name, value) in &self.facts {
            let value = escaped(value);
            // Fixed width, so that quotes and dashes differ from prose.
            let value = if name == "command" { format!("<code>{value}</code>") } else { value };
            let _ = writeln!(out, "<dt>{}</dt><dd>{value}</dd>", escaped(name));
        }
        out.push_str("</dl>\n");
        for plot in &self.plots {
            let (title, note) = (escaped(&plot.title), escaped(&plot.note));
            let _ = writeln!(
                out,
                "<section><h2>{title}</h2><p>{note}</p><div class=\"wide\">\n{}</div></section>",
                plot.svg
            );
        }
        for table in &self.tables {
            table.write(&mut out);
        }
        if !self.notes.is_empty() {
            out.push_str("<ul>\n");
            for note in &self.notes {
                let _ = writeln!(out, "<li>{}</li>", escaped(note));
            }
            out.push_str("</ul>\n");
        }
        out + "</body></html>\n"
    }
}

impl PageTable {
    fn write(&self, out: &mut String) {
        let _ = write!(out, "<section><h2>{}</h2><div class=\"wide\">\n<table><thead><tr>", escaped(&self.title));
        for cell in &self.header {
            let _ = write!(out, "<th>{}</th>", escaped(cell));
        }
        out.push_str("</tr></thead><tbody>\n");
        for (number, row) in self.rows.iter().enumerate() {
            // The default policy, so that the eye finds it.
            out.push_str(if self.marked == Some(number) { "<tr class=\"marked\">" } else { "<tr>" });
            for cell in row {
                let _ = match cell.split_once('±') {
                    // Below the mean, so that a table of many columns needs no scrolling.
                    Some((mean, deviation)) => {
                        write!(out, "<td>{}<small>±{}</small></td>", escaped(mean), escaped(deviation))
                    }
                    None => write!(out, "<td>{}</td>", escaped(cell)),
                };
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>");
        if !self.note.is_empty() {
            let _ = write!(out, "<p>{}</p>", escaped(&self.note));
        }
        out.push_str("</section>\n");
    }
}

/// Number of colours.
pub(super) const COLOURS: usize = 8;

/// Classes of the series: `.f0` fills with the first colour, `.l0` draws a line in it.
fn series_style() -> String {
    (0..COLOURS)
        .map(|one| format!("svg .f{one}{{fill:var(--s{one})}}svg .l{one}{{stroke:var(--s{one});fill:none}}"))
        .collect()
}

/// A text escaped for HTML and SVG.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(char),
        }
    }
    out
}

/// The command line in a form that can be shown to others: of each path only the last part, so that no folders of this
/// machine are revealed.
pub(crate) fn command_line(arguments: impl IntoIterator<Item = String>) -> String {
    let told = |argument: String| {
        let (flag, value) = match argument.split_once('=') {
            Some((flag, value)) if flag.starts_with("--") => (format!("{flag}="), value.to_owned()),
            _ => (String::new(), argument),
        };
        // URLs contain slashes as well, but the server that was measured belongs in the report.
        let is_path = value.contains('/') && !value.contains("://");
        let value = if is_path { value.rsplit('/').next().unwrap_or_default().to_owned() } else { value };
        let quoted = value.is_empty() || value.contains(char::is_whitespace);
        if quoted { format!("{flag}'{value}'") } else { format!("{flag}{value}") }
    };
    arguments.into_iter().map(told).collect::<Vec<_>>().join(" ")
}

/// The last part of a path.
pub(crate) fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_tells_no_folders() {
        let line =
            ["/usr/bin/gorgo", "simulate", "--trace", "../a/b/t.jsonl", "--config=/x/p.toml", "--to", "http://h/v1"];
        let told = command_line(line.map(str::to_owned));
        assert_eq!(told, "gorgo simulate --trace t.jsonl --config=p.toml --to http://h/v1");
        assert_eq!(command_line(["a b".to_owned()]), "'a b'");
        assert_eq!((file_name("/a/b.gz"), file_name("b")), ("b.gz".to_owned(), "b".to_owned()));
    }

    #[test]
    fn a_page_fetches_nothing_and_says_names_as_text() {
        let row = vec!["<script>alert(1)</script>".to_owned(), "1 & 2".to_owned()];
        let page = HtmlPage {
            title: "a < b".to_owned(),
            facts: vec![("command".to_owned(), "gorgo \"x\"".to_owned())],
            tables: vec![PageTable { header: vec!["h".to_owned(); 2], rows: vec![row], ..PageTable::default() }],
            notes: vec!["n".to_owned()],
            plots: Vec::new(),
        };
        let html = page.html();
        assert!(
            html.contains("<title>a &lt; b</title>") && html.contains("<code>gorgo &quot;x&quot;</code>"),
            "{html}"
        );
        assert!(html.contains("<td>&lt;script&gt;alert(1)&lt;/script&gt;</td><td>1 &amp; 2</td>"), "{html}");
        for wrong in ["<script", "http:", "https:", "src=", "@import", "url("] {
            assert!(!html.contains(wrong), "{wrong}");
        }
    }
}
