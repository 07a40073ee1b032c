//! Contents with a header and a hash, so that what is torn, truncated or changed is never taken for good.
//!
//! | bytes | hold |
//! |---|---|
//! | 8 | `selvedge` |
//! | 4 | the version of this form, 1 |
//! | 8 | the number of the generation |
//! | 8 | how many bytes of contents follow |
//! | … | the contents |
//! | 32 | BLAKE3 of all that is before |
//!
//! Numbers are little-endian.

const MAGIC: &[u8; 8] = b"selvedge";
const VERSION: u32 = 1;
const HEADER: usize = 28;
const HASH: usize = 32;

/// Contents, sealed with the number of their generation.
pub fn seal(number: u64, contents: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(HEADER + contents.len() + HASH);
    sealed.extend(MAGIC);
    sealed.extend(VERSION.to_le_bytes());
    sealed.extend(number.to_le_bytes());
    sealed.extend((contents.len() as u64).to_le_bytes());
    sealed.extend(contents);
    let hash = blake3::hash(&sealed);
    sealed.extend(hash.as_bytes());
    sealed
}

/// The number of the generation, and the contents.
///
/// # Errors
/// When the seal is broken: in what way, for a person.
pub fn unseal(sealed: &[u8]) -> Result<(u64, &[u8]), String> {
    let broken = || format!("it has {} bytes, and is not what was written", sealed.len());
    let (version, rest) = sealed
        .strip_prefix(MAGIC)
        .and_then(|rest| rest.split_first_chunk())
        .ok_or("it does not begin like a file of Selvedge's")?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(format!("it is of version {version}, and this program reads {VERSION}"));
    }
    let (number, rest) = rest.split_first_chunk().ok_or_else(broken)?;
    let (length, rest) = rest.split_first_chunk().ok_or_else(broken)?;
    let (contents, hash) = rest.split_last_chunk::<HASH>().ok_or_else(broken)?;
    if u64::from_le_bytes(*length) != contents.len() as u64 {
        return Err(broken());
    }
    // Comparison of blake3 hashes takes constant time.
    match blake3::hash(&sealed[..sealed.len() - HASH]) == blake3::Hash::from(*hash) {
        true => Ok((u64::from_le_bytes(*number), contents)),
        false => Err("its hash is not that of what it holds".into()),
    }
}
