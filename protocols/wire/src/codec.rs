//! The one place that knows bincode.
//!
//! Everything small that crosses the wire, and every state that is kept on disk in binary form, passes through these
//! functions, so that the format can be changed here and nowhere else. Messages must not hold
//! collections of zero-sized elements: their length costs no bytes, so no limit could bound it.

use serde::{Serialize, de::DeserializeOwned};

/// The largest encoding that is written or read, in bytes.
pub const BYTES_MAX: usize = 256 * 1024;

// Little-endian and of fixed width: then a message's size does not depend on its values, and what
// bincode counts against the limit is what is read (it counts variable-width integers as if they
// were full ones). The limit bounds what a forged length can allocate.
const CONFIG: bincode::config::Configuration<
    bincode::config::LittleEndian,
    bincode::config::Fixint,
    bincode::config::Limit<BYTES_MAX>,
> = bincode::config::standard()
    .with_fixed_int_encoding()
    .with_limit::<BYTES_MAX>();

/// Why a message could not be encoded or decoded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// The encoding exceeds [`BYTES_MAX`].
    #[error("the message is {bytes} bytes long, the limit is {BYTES_MAX}")]
    TooLarge {
        /// Size of the encoding.
        bytes: usize,
    },
    /// The value cannot be represented.
    #[error("the message cannot be encoded: {0}")]
    Encode(#[source] bincode::error::EncodeError),
    /// The bytes are not an encoding of the expected type.
    #[error("the bytes are not a message of the expected kind: {0}")]
    Decode(#[source] bincode::error::DecodeError),
    /// The message is followed by bytes that belong to nothing.
    #[error("the message is followed by {bytes} surplus bytes")]
    Trailing {
        /// Number of surplus bytes.
        bytes: usize,
    },
}

/// Encodes a message.
///
/// # Errors
/// [`CodecError::Encode`], [`CodecError::TooLarge`].
pub fn encode<T: Serialize + ?Sized>(message: &T) -> Result<Vec<u8>, CodecError> {
    let bytes = bincode::serde::encode_to_vec(message, CONFIG).map_err(CodecError::Encode)?;
    if bytes.len() > BYTES_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// Decodes a message that fills `bytes` exactly.
///
/// # Errors
/// [`CodecError::TooLarge`], [`CodecError::Decode`], [`CodecError::Trailing`].
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    if bytes.len() > BYTES_MAX {
        return Err(CodecError::TooLarge { bytes: bytes.len() });
    }
    let (message, used) = bincode::serde::decode_from_slice(bytes, CONFIG).map_err(CodecError::Decode)?;
    match bytes.len() - used {
        0 => Ok(message),
        surplus => Err(CodecError::Trailing { bytes: surplus }),
    }
}

/// For what this program has written itself and knows to be whole, by a hash: there is no limit.
const KEPT: bincode::config::Configuration<bincode::config::LittleEndian, bincode::config::Fixint> =
    bincode::config::standard().with_fixed_int_encoding();

/// Encodes a state that is to be kept, however large.
///
/// # Errors
/// [`CodecError::Encode`].
pub fn encode_kept<T: Serialize + ?Sized>(state: &T) -> Result<Vec<u8>, CodecError> {
    bincode::serde::encode_to_vec(state, KEPT).map_err(CodecError::Encode)
}

/// Decodes a state that was kept, from bytes whose hash was checked.
///
/// # Errors
/// [`CodecError::Decode`], [`CodecError::Trailing`].
pub fn decode_kept<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let (state, used) = bincode::serde::decode_from_slice(bytes, KEPT).map_err(CodecError::Decode)?;
    match bytes.len() - used {
        0 => Ok(state),
        surplus => Err(CodecError::Trailing { bytes: surplus }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Message {
        Text(String),
        Numbers { values: Vec<f64>, name: Option<String> },
        Bytes(Vec<u8>),
        Nested(Vec<Vec<u32>>),
        Nothing,
    }

    fn messages() -> impl Strategy<Value = Message> {
        prop_oneof![
            ".*".prop_map(Message::Text),
            (
                proptest::collection::vec(-1e30..1e30, 0..20),
                proptest::option::of(".*")
            )
                .prop_map(|(values, name)| Message::Numbers { values, name }),
            proptest::collection::vec(any::<u8>(), 0..99).prop_map(Message::Bytes),
            proptest::collection::vec(proptest::collection::vec(any::<u32>(), 0..9), 0..9).prop_map(Message::Nested),
            Just(Message::Nothing),
        ]
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(message in messages()) {
            let bytes = encode(&message).unwrap();
            prop_assert_eq!(decode::<Message>(&bytes).unwrap(), message);
        }

        #[test]
        fn a_message_cut_short_is_an_error(message in messages(), cut in any::<prop::sample::Index>()) {
            let bytes = encode(&message).unwrap();
            prop_assert!(decode::<Message>(&bytes[..cut.index(bytes.len())]).is_err());
        }

        #[test]
        fn a_surplus_byte_is_an_error(message in messages(), surplus in any::<u8>()) {
            let mut bytes = encode(&message).unwrap();
            bytes.push(surplus);
            let trailing = matches!(decode::<Message>(&bytes), Err(CodecError::Trailing { bytes: 1 }));
            prop_assert!(trailing);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            // Whatever decodes is a real message: it encodes again.
            if let Ok(message) = decode::<Message>(&bytes) {
                prop_assert!(encode(&message).is_ok());
            }
        }

        #[test]
        fn a_damaged_message_never_panics(
            message in messages(),
            place in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let mut bytes = encode(&message).unwrap();
            let place = place.index(bytes.len());
            bytes[place] = byte;
            if let Ok(message) = decode::<Message>(&bytes) {
                prop_assert_eq!(encode(&message).unwrap(), bytes);
            }
        }

        #[test]
        fn a_forged_length_is_refused(kind in 0u8..4, length in (BYTES_MAX as u64)..) {
            let mut bytes = vec![kind, 0, 0, 0];
            bytes.extend(length.to_le_bytes());
            prop_assert!(decode::<Message>(&bytes).is_err());
        }
    }

    #[test]
    fn a_message_of_exactly_the_limit_passes_whatever_it_is_made_of() {
        let numbers = vec![1u64; (BYTES_MAX - 8) / 8];
        let bytes = encode(&numbers).unwrap();
        assert_eq!(bytes.len(), BYTES_MAX);
        assert_eq!(decode::<Vec<u64>>(&bytes).unwrap(), numbers);
    }

    #[test]
    fn a_message_over_the_limit_is_refused_both_ways() {
        let large = vec![0u8; BYTES_MAX];
        assert!(matches!(encode(&large), Err(CodecError::TooLarge { .. })));
        let bytes = vec![0u8; BYTES_MAX + 1];
        assert!(matches!(
            decode::<Message>(&bytes),
            Err(CodecError::TooLarge { bytes }) if bytes == BYTES_MAX + 1
        ));
    }
}
