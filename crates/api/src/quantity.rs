//! Kubernetes quantities, exact to the byte.
//!
//! The whole grammar (`<signed number><suffix>` with binary, decimal and exponent suffixes) is parsed
//! with integers only: `0.1Gi` is 107374183 bytes (rounded up, as the API server does), never a float.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};
use std::{borrow::Cow, fmt, str::FromStr};

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Bytes(pub u64);

/// A quantity as the user wrote it, kept verbatim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Quantity(pub String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    #[error(
        "{0:?} is not a quantity; use a number with an optional suffix, such as 10Gi, 500M or 1e9"
    )]
    Malformed(String),
    #[error("{0:?} is negative")]
    Negative(String),
    #[error("{0:?} is larger than 2^63-1, the largest quantity that Kubernetes can hold")]
    TooLarge(String),
}

/// `(multiplier, decimal exponent)` of a suffix.
fn suffix(text: &str) -> Option<(u128, i32)> {
    Some(match text {
        "" => (1, 0),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        _ => {
            let digits = text.strip_prefix(['e', 'E'])?;
            let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(digits);
            if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // Beyond ±100 the value is zero or too large anyway; clamping keeps the arithmetic in range.
            let exponent =
                digits.parse::<i64>().unwrap_or(if digits.starts_with('-') { -100 } else { 100 });
            (1, exponent.clamp(-100, 100) as i32)
        }
    })
}

impl Quantity {
    /// The value in whole bytes, rounded up.
    pub fn bytes(&self) -> Result<Bytes, QuantityError> {
        let text = self.0.as_str();
        let value = self.scaled(0)?;
        if value > i64::MAX as u128 {
            return Err(QuantityError::TooLarge(text.to_owned()));
        }
        Ok(Bytes(value as u64))
    }

    /// The value in billionths, rounded up: for comparing quantities that may be fractions, such as `500m`.
    pub fn nanos(&self) -> Result<u128, QuantityError> {
        self.bytes()?;
        self.scaled(9)
    }

    /// The value times 10^`power`, rounded up.
    fn scaled(&self, power: i32) -> Result<u128, QuantityError> {
        let text = self.0.as_str();
        let malformed = || QuantityError::Malformed(text.to_owned());
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end =
            unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(unsigned.len());
        let (number, tail) = unsigned.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(malformed());
        }
        let (multiplier, exponent) = suffix(tail).ok_or_else(malformed)?;
        let value = scale(whole, fraction, multiplier, exponent + power)
            .ok_or_else(|| QuantityError::TooLarge(text.to_owned()))?;
        match (negative, value) {
            (true, 1..) => Err(QuantityError::Negative(text.to_owned())),
            (_, value) => Ok(value),
        }
    }
}

/// `whole.fraction × multiplier × 10^exponent`, rounded up; `None` when it cannot fit.
fn scale(whole: &str, fraction: &str, multiplier: u128, exponent: i32) -> Option<u128> {
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    // Trailing zeros carry no value but could overflow the mantissa ("1.000…0").
    let mantissa_text = significant.trim_end_matches('0');
    let dropped = (significant.len() - mantissa_text.len()) as i32;
    let power = exponent + dropped - fraction.len() as i32;
    if mantissa_text.len() > 19 {
        return scale_long(mantissa_text, multiplier, power);
    }
    let mantissa: u128 = mantissa_text.parse().ok()?;
    let product = mantissa.checked_mul(multiplier)?;
    if power >= 0 {
        return product.checked_mul(10u128.checked_pow(power as u32)?);
    }
    match 10u128.checked_pow(power.unsigned_abs()) {
        Some(divisor) => Some(product.div_ceil(divisor)),
        // Smaller than any divisor we can write: a positive value rounds up to one byte.
        None => Some(1),
    }
}

/// More than 19 significant digits: the digits past the 19th can only push the result up by less than
/// one unit of the kept ones, so they count as "a little more" for the rounding.
fn scale_long(mantissa: &str, multiplier: u128, power: i32) -> Option<u128> {
    let exact = num_from_digits(mantissa, multiplier)?;
    if power >= 0 {
        return None;
    }
    Some(divide_pow10_up(exact, power.unsigned_abs()))
}

/// The product as decimal digits, least significant first: long enough inputs are rare, so clarity wins.
fn num_from_digits(mantissa: &str, multiplier: u128) -> Option<Vec<u8>> {
    let mut digits: Vec<u8> = Vec::with_capacity(mantissa.len() + 20);
    let mut carry: u128 = 0;
    for digit in mantissa.bytes().rev() {
        let value = u128::from(digit - b'0').checked_mul(multiplier)?.checked_add(carry)?;
        digits.push((value % 10) as u8);
        carry = value / 10;
    }
    while carry > 0 {
        digits.push((carry % 10) as u8);
        carry /= 10;
    }
    Some(digits)
}

fn divide_pow10_up(digits: Vec<u8>, power: u32) -> u128 {
    let cut = (power as usize).min(digits.len());
    let (low, high) = digits.split_at(cut);
    let round_up =
        low.iter().any(|d| *d != 0) || (power as usize > digits.len() && !digits.is_empty());
    let whole = high
        .iter()
        .rev()
        .try_fold(0u128, |sum, d| sum.checked_mul(10)?.checked_add(u128::from(*d)));
    whole.map_or(u128::MAX, |whole| whole.saturating_add(u128::from(round_up)))
}

impl FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let quantity = Quantity(text.to_owned());
        match quantity.bytes() {
            Ok(_) | Err(QuantityError::Negative(_)) => Ok(quantity),
            Err(error) => Err(error),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Bytes> for Quantity {
    /// The canonical form: the largest binary suffix that divides the value.
    fn from(bytes: Bytes) -> Self {
        const UNITS: [(&str, u32); 6] =
            [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
        let fits =
            UNITS.iter().find(|(_, shift)| bytes.0 > 0 && bytes.0.is_multiple_of(1 << shift));
        Quantity(match fits {
            Some((unit, shift)) => format!("{}{unit}", bytes.0 >> shift),
            None => bytes.0.to_string(),
        })
    }
}

impl fmt::Display for Bytes {
    /// As a quantity, rounded to a tenth: `1.5Gi`; plain bytes below 1Ki.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
        let unit = (63 - self.0.max(1).leading_zeros()) / 10;
        let divisor = 1u128 << (10 * unit);
        let tenths = (u128::from(self.0) * 10 + divisor / 2) / divisor;
        match tenths % 10 {
            0 => write!(f, "{}{}", tenths / 10, UNITS[unit as usize]),
            tenth => write!(f, "{}.{tenth}{}", tenths / 10, UNITS[unit as usize]),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Quantity;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity: a number or a string such as 10Gi")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                Ok(Quantity(text.to_owned()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                Ok(Quantity(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "x-kubernetes-int-or-string": true,
            "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
        })
    }
    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(text: &str) -> Result<u64, QuantityError> {
        Quantity(text.to_owned()).bytes().map(|b| b.0)
    }

    #[test]
    fn the_whole_grammar_is_parsed_exactly() {
        let table: &[(&str, u64)] = &[
            ("0", 0),
            ("1", 1),
            ("+1", 1),
            ("1Ki", 1024),
            ("1.5Gi", 1610612736),
            ("0.1Gi", 107374183),
            (".5Ki", 512),
            ("5.Ki", 5120),
            ("1k", 1000),
            ("1M", 1_000_000),
            ("1e9", 1_000_000_000),
            ("1E9", 1_000_000_000),
            ("12E", 0),
            ("1e+3", 1000),
            ("15e-1", 2),
            ("1n", 1),
            ("1500m", 2),
            ("1Ei", 1 << 60),
            ("7Ei", 7 << 60),
            ("9223372036854775807", i64::MAX as u64),
            ("-0", 0),
            ("0e5", 0),
            ("1.00000000000000000000000000000000000", 1),
            ("1.00000000000000000000000000000000001", 2),
            ("1e-400", 1),
            ("100000000000000000000n", 100_000_000_000),
            ("0.00000000000000000001", 1),
        ];
        for (text, expected) in table {
            if *text == "12E" {
                assert_eq!(bytes(text), Err(QuantityError::TooLarge("12E".into())));
            } else {
                assert_eq!(bytes(text), Ok(*expected), "{text}");
            }
        }
    }

    #[test]
    fn invalid_quantities_are_refused_with_a_remedy() {
        for text in
            ["", "Gi", "1GiB", "1 Gi", "1.2.3", "--1", "1e", "e5", "0x10", "1e5Ki", "٣", "1ki", "."]
        {
            assert!(
                matches!(bytes(text), Err(QuantityError::Malformed(_))),
                "{text}: {:?}",
                bytes(text)
            );
        }
        assert!(matches!(bytes("-1Gi"), Err(QuantityError::Negative(_))));
        assert!(matches!(bytes("8Ei"), Err(QuantityError::TooLarge(_))));
        assert!(matches!(bytes("1e100"), Err(QuantityError::TooLarge(_))));
        assert!(matches!(
            bytes("99999999999999999999999999999999999999999"),
            Err(QuantityError::TooLarge(_))
        ));
    }

    #[test]
    fn fractions_are_compared_exactly() {
        let nanos = |text: &str| Quantity(text.to_owned()).nanos().unwrap();
        for (smaller, larger) in [("100m", "500m"), ("999m", "1"), ("1n", "2n"), ("1.5", "1501m")] {
            assert!(nanos(smaller) < nanos(larger), "{smaller} {larger}");
        }
        assert_eq!(nanos("2"), nanos("2000m"));
        assert_eq!(nanos("7Ei"), (7 << 60) * 1_000_000_000);
        assert!(Quantity("8Ei".into()).nanos().is_err() && Quantity("-1m".into()).nanos().is_err());
    }

    #[test]
    fn sizes_are_shown_in_the_expected_unit() {
        for (value, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1Ki"),
            (1536, "1.5Ki"),
            (1 << 30, "1Gi"),
            (u64::MAX, "16Ei"),
        ] {
            assert_eq!(Bytes(value).to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn canonical_form_reads_back_the_same(value in 0u64..i64::MAX as u64) {
            prop_assert_eq!(Quantity::from(Bytes(value)).bytes(), Ok(Bytes(value)));
        }

        #[test]
        fn decimals_agree_with_integer_arithmetic(whole in 0u64..1_000_000, thousandths in 0u64..1000) {
            let text = format!("{whole}.{thousandths:03}Ki");
            let expected = ((u128::from(whole) * 1000 + u128::from(thousandths)) * 1024).div_ceil(1000);
            prop_assert_eq!(bytes(&text), Ok(expected as u64));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,40}") {
            let _parsed = bytes(&text);
        }
    }
}
