//! Owns the canonical form of quantities in built-in kinds: kube-apiserver stores `1Gi` for
//! `1024Mi`. Text that is not a quantity is left unchanged; the kind's validation refuses it.

const BINARY: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// The canonical text; `None` when the text is not a whole quantity that this function can reduce.
pub fn canonical(text: &str) -> Option<String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    if digits == 0 {
        return None;
    }
    let mut number: u128 = text[..digits].parse().ok()?;
    let suffix = &text[digits..];
    let (table, factor) = if suffix.is_empty() || DECIMAL.contains(&suffix) {
        (DECIMAL, 1000)
    } else {
        (BINARY, 1024)
    };
    let mut power = table.iter().position(|known| *known == suffix)?;
    if number == 0 {
        return Some("0".into());
    }
    while number.is_multiple_of(factor) && power + 1 < table.len() {
        number /= factor;
        power += 1;
    }
    Some(format!("{number}{}", table[power]))
}

/// Whether the text is a quantity.
pub fn is_quantity(text: &str) -> bool {
    let rest = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, suffix) = rest.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).is_some_and(|digits| {
        !digits.is_empty()
            && digits.trim_start_matches(['+', '-']).chars().all(|c| c.is_ascii_digit())
    });
    number.chars().any(|c| c.is_ascii_digit())
        && number.matches('.').count() <= 1
        && (exponent
            || matches!(suffix, "n" | "u" | "m")
            || BINARY.contains(&suffix)
            || DECIMAL.contains(&suffix))
}

/// Whether the quantity is greater than zero.
pub fn is_positive(text: &str) -> bool {
    is_quantity(text) && !text.starts_with('-') && {
        let end =
            text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '+').unwrap_or(text.len());
        text[..end].chars().any(|c| ('1'..='9').contains(&c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_reduced_like_kube_apiserver_does() {
        for (given, wanted) in [
            ("1024Mi", Some("1Gi")),
            ("1000", Some("1k")),
            ("1024", Some("1024")),
            ("1025Mi", Some("1025Mi")),
            ("0", Some("0")),
            ("10Gi", Some("10Gi")),
            ("1.5Gi", None),
            ("x", None),
        ] {
            assert_eq!(canonical(given).as_deref(), wanted, "{given}");
        }
    }

    #[test]
    fn quantities_are_recognized() {
        for good in ["1", "1.5Gi", "100m", "1e3", "-5", "+1Ki"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", "Gi", "1 Gi", "1gi", "1.2.3", "e3"] {
            assert!(!is_quantity(bad), "{bad}");
        }
        assert!(is_positive("1Gi") && !is_positive("0") && !is_positive("-1Gi"));
    }
}
