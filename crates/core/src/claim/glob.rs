//! Patterns for kernel names, as the Local Storage Operator's exclusion filter has them: `*`, `?`, `[a-c]`, `[^a]`, `\`.
//!
//! By hand: the crates of this kind know `[!a]` only and read `[^a]` as something else, and a pattern that excludes a
//! device must mean the same here as where it was written for.

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
    /// `Err` says what is wrong with the pattern.
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

    /// Whether the whole name fits.
    pub fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        fits(&self.parts, &name)
    }
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Part, String> {
    const OPEN: &str = "has a [ without its ]";
    let negated = chars.next_if(|c| matches!(c, '^' | '!')).is_some();
    let mut ranges = Vec::new();
    loop {
        let one = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| -> Result<char, String> {
            match chars.next().ok_or(OPEN)? {
                '\\' => chars.next().ok_or_else(|| OPEN.into()),
                c => Ok(c),
            }
        };
        if !ranges.is_empty() && chars.next_if_eq(&']').is_some() {
            return Ok(Part::Class { ranges, negated });
        }
        let low = one(chars)?;
        if low == ']' && ranges.is_empty() {
            return Err("has an empty []".into());
        }
        let high = if chars.next_if_eq(&'-').is_some() { one(chars)? } else { low };
        if low > high {
            return Err(format!("has the range {low}-{high}, which is the wrong way round"));
        }
        ranges.push((low, high));
    }
}

fn fits(parts: &[Part], name: &[char]) -> bool {
    let Some((first, rest)) = parts.split_first() else { return name.is_empty() };
    match first {
        // Kernel names have at most 32 characters: trying every length is cheap.
        Part::Any => (0..=name.len()).any(|length| fits(rest, &name[length..])),
        Part::One => !name.is_empty() && fits(rest, &name[1..]),
        Part::Literal(wanted) => name.first() == Some(wanted) && fits(rest, &name[1..]),
        Part::Class { ranges, negated } => {
            let hit = |c: &char| ranges.iter().any(|(low, high)| (low..=high).contains(&c)) != *negated;
            name.first().is_some_and(hit) && fits(rest, &name[1..])
        }
    }
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
            ("sd[!a]", &["sdb"], &["sda"]),
            ("*1", &["sda1", "1"], &["sda2"]),
            ("a\\*", &["a*"], &["ab"]),
            ("nvme*n[13]", &["nvme0n1", "nvme12n3"], &["nvme0n2"]),
            ("[]-a]", &[], &[]),
        ] {
            let Ok(glob) = Glob::parse(pattern) else {
                assert_eq!(pattern, "[]-a]");
                continue;
            };
            for name in yes {
                assert!(glob.matches(name), "{pattern} {name}");
            }
            for name in no {
                assert!(!glob.matches(name), "{pattern} {name}");
            }
        }
    }

    #[test]
    fn a_pattern_that_means_nothing_is_told() {
        for (pattern, said) in
            [("", "empty"), ("sd[a", "without its ]"), ("a\\", "backslash"), ("[c-a]", "wrong way"), ("[]", "empty []"), ("[a-", "without its ]")]
        {
            assert!(Glob::parse(pattern).unwrap_err().contains(said), "{pattern}");
        }
    }
}
