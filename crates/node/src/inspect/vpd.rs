//! SCSI vital product data, as the kernel keeps it in sysfs: page 0x80 (serial number), page 0x83 (designators).
//!
//! Bytes from firmware: lengths are believed only as far as there are bytes.

use quarry_core::device::sanitize::printable;

/// Page code and length, then the serial number.
pub fn parse_vpd80(bytes: &[u8]) -> Option<String> {
    printable(page(bytes, 0x80)?)
}

/// The NAA and EUI-64 designators of the logical unit (not of its port), as `naa.<hex>` and `eui.<hex>`.
pub fn parse_vpd83(bytes: &[u8]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut rest = page(bytes, 0x83).unwrap_or_default();
    while let [code_set, kind, _, length, after @ ..] = rest {
        let Some(value) = after.get(..usize::from(*length)) else { break };
        rest = &after[value.len()..];
        let (binary, logical_unit) = (code_set & 0x0f == 1, kind & 0x30 == 0);
        let prefix = match kind & 0x0f {
            2 if matches!(value.len(), 8 | 12 | 16) => "eui",
            3 if matches!(value.len(), 8 | 16) => "naa",
            _ => continue,
        };
        // All zero is what firmware without a number writes.
        if binary && logical_unit && value.iter().any(|byte| *byte != 0) {
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            let name = format!("{prefix}.{hex}");
            if !found.contains(&name) {
                found.push(name);
            }
        }
    }
    found
}

fn page(bytes: &[u8], code: u8) -> Option<&[u8]> {
    let [_, found, high, low, rest @ ..] = bytes else { return None };
    (*found == code)
        .then(|| &rest[..rest.len().min(usize::from(u16::from_be_bytes([*high, *low])))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_serial_number() {
        assert_eq!(parse_vpd80(b"\0\x80\0\x08  SN1234").as_deref(), Some("SN1234"));
        assert_eq!(parse_vpd80(b"\0\x80\0\x04ABCDEFG").as_deref(), Some("ABCD"));
        assert_eq!(parse_vpd80(b"\0\x80\xff\xffAB").as_deref(), Some("AB"), "a length that lies");
        for nothing in [&b"\0\x83\0\x04ABCD"[..], b"\0\x80\0", b"", b"\0\x80\0\0"] {
            assert_eq!(parse_vpd80(nothing), None);
        }
    }

    #[test]
    fn designators_of_the_logical_unit() {
        let mut page = vec![0, 0x83, 0, 0];
        page.extend(b"\x02\x01\0\x04VEND"); // T10 vendor text
        page.extend(b"\x01\x03\0\x08\x50\0\xc5\0\x12\x34\x56\x78"); // NAA of the unit
        page.extend(b"\x01\x13\0\x08\x50\0\xc5\0\x12\x34\x56\x79"); // NAA of the port
        page.extend(b"\x01\x02\0\x08\0\x25\x38\x5a\x91\x50\x22\x1d"); // EUI-64
        page.extend(b"\x01\x03\0\x08\0\0\0\0\0\0\0\0"); // nothing
        page.extend(b"\x01\x03\0\x10\x60"); // cut off
        let length = page.len() as u8 - 4;
        page[3] = length;
        assert_eq!(parse_vpd83(&page), ["naa.5000c50012345678", "eui.0025385a9150221d"]);
    }

    proptest! {
        #[test]
        fn whatever_comes_it_does_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            for code in [0x80, 0x83] {
                let mut bytes = bytes.clone();
                if bytes.len() > 3 {
                    (bytes[1], bytes[2]) = (code, 0);
                }
                parse_vpd80(&bytes);
                parse_vpd83(&bytes);
            }
        }
    }
}
