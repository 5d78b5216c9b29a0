//! [`end_point`]: what binds a login to the certificate of the server, so that nobody between can
//! pass it on (`tls-server-end-point` of RFC 5929).

use rustls::crypto::ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};

/// Of RSA, by the end of its name: MD5, SHA-1, SHA-256, SHA-384.
const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
/// Of elliptic curves: SHA-1.
const CURVE_SHA1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
/// By the end of its name: SHA-256, SHA-384.
const CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03];

/// The hash of a certificate, by the algorithm that signed it, and SHA-256 instead of MD5 and
/// SHA-1. `None`: by another algorithm, and nothing is bound.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let suite = match signed_by(certificate)? {
        name if name == CURVE_SHA1 => TLS13_AES_128_GCM_SHA256,
        name => match (name.strip_prefix(RSA), name.strip_prefix(CURVE)) {
            (Some([0x04 | 0x05 | 0x0b]), _) | (_, Some([0x02])) => TLS13_AES_128_GCM_SHA256,
            (Some([0x0c]), _) | (_, Some([0x03])) => TLS13_AES_256_GCM_SHA384,
            _ => return None,
        },
    };
    let hash = suite.tls13()?.common.hash_provider;
    Some(hash.hash(certificate).as_ref().to_vec())
}

/// The name of the algorithm that signed a certificate, as DER writes it: the second part of three.
fn signed_by(certificate: &[u8]) -> Option<&[u8]> {
    let (parts, _) = element(certificate)?;
    let (_to_be_signed, rest) = element(parts)?;
    let (algorithm, _) = element(rest)?;
    let (name, _) = element(algorithm)?;
    Some(name)
}

/// The content of the first element of DER, and what follows it.
fn element(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let [_tag, length, rest @ ..] = der else {
        return None;
    };
    let (length, rest) = match length {
        0..=0x7f => (usize::from(*length), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
            let length = bytes
                .iter()
                .fold(0, |all, byte| (all << 8) | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a certificate is built, with this algorithm.
    fn signed(name: &[u8]) -> Vec<u8> {
        let part = |content: &[u8]| {
            let length = u8::try_from(content.len()).unwrap();
            [&[0x30, 0x81, length], content].concat()
        };
        let name = [&[0x06, u8::try_from(name.len()).unwrap()], name].concat();
        part(&[part(&[7; 100]), part(&name), vec![3, 1, 0]].concat())
    }

    #[test]
    fn the_algorithm_that_signed_a_certificate_is_that_of_its_hash() {
        for (prefix, end, length) in [
            (RSA, 0x05, Some(32)),
            (RSA, 0x0b, Some(32)),
            (RSA, 0x0c, Some(48)),
            (CURVE, 0x02, Some(32)),
            (CURVE, 0x03, Some(48)),
            (&CURVE_SHA1[..6], 0x01, Some(32)),
            // SHA-512, and one that is of none.
            (RSA, 0x0d, None),
            (CURVE, 0x04, None),
            (&[0x2b, 0x65], 0x70, None),
        ] {
            let hash = end_point(&signed(&[prefix, &[end]].concat()));
            assert_eq!(hash.map(|hash| hash.len()), length, "{prefix:?} {end}");
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_end_point() {
        let whole = signed(&[CURVE, &[0x02]].concat());
        for end in 0..100 {
            assert_eq!(end_point(&whole[..end]), None);
        }
        assert_eq!(end_point(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff, 0]), None);
    }
}
