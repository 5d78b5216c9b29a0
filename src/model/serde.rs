//! Serde for the vocabulary (feature `config`): each value is written as its text or number and parsed when it is read.

macro_rules! by_conversion {
    ($word:ty, $plain:ty, $write:expr) => {
        impl ::serde::Serialize for $word {
            fn serialize<S: ::serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                let write: fn($word) -> $plain = $write;
                write(self.clone()).serialize(to)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $word {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let plain = <$plain>::deserialize(from)?;
                Self::try_from(plain).map_err(::serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use by_conversion;

#[cfg(test)]
mod tests {
    use crate::{FencingToken, Key, TxnId};

    #[test]
    fn words_are_written_plainly_and_parsed_when_they_are_read() {
        let key = Key::parse("accounts/7").unwrap();
        let token = FencingToken::MAX;
        let id = TxnId::generate([0; 4]).unwrap();
        let text = serde_json::to_string(&(&key, token, id)).unwrap();
        assert_eq!(text, format!(r#"["accounts/7",{token},"{id}"]"#));
        let read: (Key, FencingToken, TxnId) = serde_json::from_str(&text).unwrap();
        assert_eq!(read, (key, token, id));

        assert!(serde_json::from_str::<Key>(r#""a//b""#).is_err());
        assert!(serde_json::from_str::<FencingToken>("9007199254740992").is_err());
        assert!(serde_json::from_str::<TxnId>(r#""7""#).is_err());
    }
}
