//! The page that lists a folder: one HTML document that needs nothing else.

use std::{
    fmt::{self, Write},
    time::SystemTime,
};

use super::entries::{Column, Listed, ListingEntry, MAX_ENTRIES, PAGE, SortOrder};

const STYLE: &str = include_str!("listing.css");

#[derive(Debug)]
pub(super) struct Page<'a> {
    /// The decoded path of the folder.
    pub(super) path: &'a [u8],
    /// Whether the folder is the route's own, so that the page must not link to a parent.
    pub(super) is_root: bool,
    pub(super) entries: &'a [&'a ListingEntry],
    /// The listed folder.
    pub(super) folder: &'a Listed,
    /// Number of the page, from 1.
    pub(super) number: usize,
    pub(super) order: SortOrder,
}

pub(super) fn render_html(page: &Page<'_>) -> String {
    let mut out = String::with_capacity(2048 + 192 * page.entries.len());
    // INVARIANT: writing to a String does not fail.
    let _ = write_document(&mut out, page);
    out
}

fn write_document(out: &mut String, page: &Page<'_>) -> fmt::Result {
    let title = HtmlText(page.path);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Index of {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Index of <bdi>{title}</bdi></h1>\n<table>\n<thead><tr>"
    )?;
    for (column, label) in [
        (Column::Name, "Name"),
        (Column::Size, "Size"),
        (Column::Modified, "Modified (UTC)"),
    ] {
        write_heading(out, page.order, column, label)?;
    }
    out.write_str("</tr></thead>\n<tbody>\n")?;
    if !page.is_root {
        out.write_str(
            "<tr class=\"up\"><td><a href=\"../\">Parent folder</a></td><td></td><td></td></tr>\n",
        )?;
    }
    for entry in page.entries {
        write_row(out, entry)?;
    }
    out.write_str("</tbody>\n</table>\n")?;
    let Listed {
        entries,
        folders,
        more,
        ..
    } = page.folder;
    write_page_links(out, page, entries.len().div_ceil(PAGE))?;
    let files = entries.len() - folders;
    if *more {
        let note = "entries are shown; the folder holds more.";
        writeln!(out, "<p>Only {MAX_ENTRIES} {note}</p>")?;
    } else {
        writeln!(out, "<p>Folders: {folders}, files: {files}</p>")?;
    }
    out.write_str("</main>\n</body>\n</html>\n")
}

/// Writes links to the previous and next page, if there are several `pages`.
fn write_page_links(out: &mut String, page: &Page<'_>, pages: usize) -> fmt::Result {
    if pages < 2 {
        return Ok(());
    }
    let (key, direction) = (page.order.column.query_letter(), page.order.direction());
    let link = |out: &mut String, rel: &str, number: usize, label: &str| {
        write!(
            out,
            "<a rel=\"{rel}\" href=\"?C={key}&amp;O={direction}&amp;page={number}\">{label}</a> "
        )
    };
    let number = page.number;
    out.write_str("<nav>")?;
    if number > 1 {
        link(out, "prev", number - 1, "Previous")?;
    }
    write!(out, "Page {number} of {pages} ")?;
    if number < pages {
        link(out, "next", number + 1, "Next")?;
    }
    out.write_str("</nav>\n")
}

/// Writes the heading of a column, with a link that sorts by the column. If the list is already sorted so, the link reverses the
/// order.
fn write_heading(out: &mut String, order: SortOrder, column: Column, label: &str) -> fmt::Result {
    let key = column.query_letter();
    let active = order.column == column;
    let descending = active && !order.descending;
    let direction = SortOrder { column, descending }.direction();
    let state = match (active, order.descending) {
        (false, _) => "",
        (true, false) => " aria-sort=\"ascending\"",
        (true, true) => " aria-sort=\"descending\"",
    };
    write!(
        out,
        "<th scope=\"col\"{state}><a href=\"?C={key}&amp;O={direction}\">{label}</a></th>"
    )
}

fn write_row(out: &mut String, entry: &ListingEntry) -> fmt::Result {
    let (class, slash) = if entry.folder {
        ("folder", "/")
    } else {
        ("file", "")
    };
    let (link, text) = (Href(&entry.name), HtmlText(&entry.name));
    write!(
        out,
        "<tr class=\"{class}\"><td><a href=\"{link}{slash}\"><bdi>{text}</bdi>{slash}</a></td><td>"
    )?;
    if !entry.folder {
        write!(out, "{}", ByteSize(entry.size))?;
    }
    out.write_str("</td><td>")?;
    if let Some(modified) = entry.modified {
        write!(out, "{}", Date(modified))?;
    }
    out.write_str("</td></tr>\n")
}

/// Text for HTML, in content and in attributes. HTML characters are escaped, control characters become their pictures, and bytes
/// that are not UTF-8 become U+FFFD.
struct HtmlText<'a>(&'a [u8]);

impl fmt::Display for HtmlText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in String::from_utf8_lossy(self.0).chars() {
            match c {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\0'..='\x1f' => f.write_char(char::from_u32(0x2400 + c as u32).unwrap_or(' '))?,
                '\x7f'..='\u{9f}' => f.write_char('\u{2421}')?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A name as a relative reference, byte for byte. All but the unreserved characters of RFC 3986, 2.3 are encoded, so that a colon
/// does not make a scheme.
struct Href<'a>(&'a [u8]);

impl fmt::Display for Href<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &b in self.0 {
            if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
                f.write_char(b as char)?;
            } else {
                write!(f, "%{b:02X}")?;
            }
        }
        Ok(())
    }
}

/// A size in the largest unit that leaves at least 1: `617 B`, `4.2 KiB`.
struct ByteSize(u64);

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut unit = "B";
        // Count tenths. u128, because ten times the largest size does not fit into u64.
        let mut tenths = u128::from(self.0) * 10;
        for larger in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
            if tenths < 10_240 {
                break;
            }
            tenths /= 1024;
            unit = larger;
        }
        match (unit, tenths / 10, tenths % 10) {
            ("B", whole, _) => write!(f, "{whole} B"),
            (_, whole, tenth) => write!(f, "{whole}.{tenth} {unit}"),
        }
    }
}

/// A time to the minute, `06 Nov 1994 08:49`.
struct Date(SystemTime);

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `Sun, 06 Nov 1994 08:49:37 GMT`: IMF-fixdate has fixed places (RFC 9110, 5.6.7).
        let date = httpdate::fmt_http_date(self.0);
        f.write_str(date.get(5..22).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_place() {
        let text = HtmlText(b"<b>&\"'\n\xff\x7f\xc2\x85").to_string();
        assert_eq!(
            text,
            "&lt;b&gt;&amp;&quot;&#39;\u{240a}\u{fffd}\u{2421}\u{2421}"
        );
    }

    #[test]
    fn links_hold_every_byte() {
        assert_eq!(
            Href(b"a:b/%\n\xff~.-_").to_string(),
            "a%3Ab%2F%25%0A%FF~.-_"
        );
    }

    #[test]
    fn sizes() {
        for (bytes, want) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1 << 20, "1.0 MiB"),
            (u64::MAX, "15.9 EiB"),
        ] {
            assert_eq!(ByteSize(bytes).to_string(), want);
        }
    }

    #[test]
    fn dates() {
        let then = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
        assert_eq!(Date(then).to_string(), "06 Nov 1994 08:49");
    }
}
