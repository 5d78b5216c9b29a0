//! Serde for the vocabulary (feature `config`): each value is written as its text or number and
//! parsed when it is read.

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
    use toml::Value;

    use crate::run::TxnId;
    use crate::{FencingToken, Key};

    #[test]
    fn words_are_written_plainly_and_parsed_when_they_are_read() {
        let key = Key::parse("accounts/7").unwrap();
        let token = FencingToken::MAX;
        let id = TxnId::generate([0; 4]).unwrap();
        let written = Value::try_from((&key, token, id)).unwrap();
        let plain = [
            Value::from("accounts/7"),
            Value::from((1_i64 << 53) - 1),
            Value::from(id.to_string()),
        ];
        assert_eq!(written, Value::from(plain.to_vec()));
        let read: (Key, FencingToken, TxnId) = written.try_into().unwrap();
        assert_eq!(read, (key, token, id));

        assert!(Value::from("a//b").try_into::<Key>().is_err());
        let too_large = Value::from(9_007_199_254_740_992_i64);
        assert!(too_large.try_into::<FencingToken>().is_err());
        assert!(Value::from("7").try_into::<TxnId>().is_err());
    }
}
