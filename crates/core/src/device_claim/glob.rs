//! Patterns for kernel names, as the Local Storage Operator's exclusion filter has them: `*`, `?`, `[a-c]`, `[^a]`, `\`.
//!
//! Written by hand: the crates for this support `[!a]` only and read `[^a]` differently, and a pattern that excludes a
//! device must have the same meaning as upstream.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: String,
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Literal(char),
    Class { ranges: Vec<(char, char)>, negated: bool },
}

impl Glob {
    /// `Err`: the problem of the pattern.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty".into());
        }
        let mut chars = text.chars().peekable();
        let mut parts = Vec::new();
        while let Some(c) = chars.next() {
            parts.push(match c {
                '*' => Part::Any,
                '?' => Part::One,
                '\\' => Part::Literal(chars.next().ok_or("ends in a backslash")?),
                '[' => class(&mut chars)?,
                c => Part::Literal(c),
            });
        }
        Ok(Glob { text: text.to_owned(), parts })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole name matches.
    pub fn matches(&self, name: &str) -> bool {
        fits(&self.parts, name)
    }
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Part, String> {
    const OPEN: &str = "has a [ without its ]";
    if chars.peek() == Some(&'!') {
        // Here the character !, in a shell "everything but": the wrong reading would cost a disk.
        return Err("has [!…], which has another meaning than in a shell; use [^…] for everything but these".into());
    }
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        let one = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Result<char, String> {
            match chars.next().ok_or(OPEN)? {
                '\\' => chars.next().ok_or_else(|| OPEN.into()),
                '-' => Err("has a - that is no range; use \\- for the character".into()),
                c => Ok(c),
            }
        };
        if chars.next_if_eq(&']').is_some() {
            return if ranges.is_empty() {
                Err("has an empty []".into())
            } else {
                Ok(Part::Class { ranges, negated })
            };
        }
        let low = one(chars)?;
        let high = match chars.next_if_eq(&'-') {
            Some(_) if chars.peek() == Some(&']') => {
                return Err("has a range without its end".into());
            }
            Some(_) => one(chars)?,
            None => low,
        };
        if low > high {
            return Err(format!("has the range {low}-{high}, which is reversed"));
        }
        ranges.push((low, high));
    }
}

impl Part {
    /// Whether it matches this character.
    fn is(&self, c: char) -> bool {
        match self {
            Part::Any => false,
            Part::One => true,
            Part::Literal(wanted) => *wanted == c,
            Part::Class { ranges, negated } => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
        }
    }
}

/// Which parts of the pattern may come next, character by character: linear in the length of the pattern for each.
fn fits(parts: &[Part], name: &str) -> bool {
    let after_stars = |mut at: usize, next: &mut Vec<bool>| {
        next[at] = true;
        while parts.get(at) == Some(&Part::Any) {
            at += 1;
            next[at] = true;
        }
    };
    let mut may = vec![false; parts.len() + 1];
    after_stars(0, &mut may);
    for c in name.chars() {
        let mut next = vec![false; parts.len() + 1];
        for (at, part) in parts.iter().enumerate().filter(|(at, _)| may[*at]) {
            if *part == Part::Any {
                after_stars(at, &mut next);
            } else if part.is(c) {
                after_stars(at + 1, &mut next);
            }
        }
        may = next;
    }
    may[parts.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_they_mean_elsewhere() {
        for (pattern, yes, no) in [
            ("rbd*", &["rbd0", "rbd"][..], &["nrbd0", "rb"][..]),
            ("sd?", &["sda"], &["sd", "sdaa"]),
            ("sd[a-c]", &["sda", "sdc"], &["sdd", "sd"]),
            ("sd[^a-c]", &["sdd"], &["sda"]),
            ("sd[^!]", &["sda"], &["sd!"]),
            ("a[x\\]y]b", &["axb", "a]b", "ayb"], &["a\\b"]),
            ("a[\\--0]b", &["a-b", "a.b", "a0b"], &["a1b"]),
            ("a**b*c", &["abc", "axbxc", "abbcc"], &["ab", "acb"]),
            ("*", &["", "sda"], &[]),
            ("*1", &["sda1", "1"], &["sda2"]),
            ("a\\*", &["a*"], &["ab"]),
            ("nvme*n[13]", &["nvme0n1", "nvme12n3"], &["nvme0n2"]),
        ] {
            let glob = Glob::parse(pattern).unwrap();
            for name in yes {
                assert!(glob.matches(name), "{pattern} {name}");
            }
            for name in no {
                assert!(!glob.matches(name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn an_invalid_pattern_is_reported() {
        for (pattern, expected) in [
            ("", "empty"),
            ("sd[a", "without its ]"),
            ("sd[a\\", "without its ]"),
            ("a\\", "backslash"),
            ("[c-a]", "reversed"),
            ("[]", "empty []"),
            ("[^]", "empty []"),
            ("[]-a]", "empty []"),
            ("[a-", "without its ]"),
            ("[a-]", "without its end"),
            ("[-a]", "no range"),
            ("sd[!a]", "use [^…]"),
        ] {
            assert!(Glob::parse(pattern).unwrap_err().contains(expected), "{pattern}");
        }
    }

    /// With backtracking, this would not finish.
    #[test]
    fn no_pattern_takes_long() {
        let stars = Glob::parse(&format!("{}x", "*".repeat(255))).unwrap();
        assert!(!stars.matches("nvme0n1") && stars.matches("x"));
        let mixed = Glob::parse(&format!("{}x", "*n".repeat(127))).unwrap();
        assert!(!mixed.matches(&"n".repeat(200)));
    }
}
