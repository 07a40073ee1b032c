use std::io::Write;

use zip::write::SimpleFileOptions;

use super::*;

/// A .npy file of version 1.
fn npy(type_code: &str, fortran_order: &str, shape: &str, body: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{type_code}', 'fortran_order': {fortran_order}, 'shape': {shape}, }}\n");
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), body].concat()
}

fn read_all(content: &[u8]) -> Result<Array, String> {
    read(content, Some(content.len() as u64)).map_err(|error| error.to_string())
}

#[test]
fn every_supported_type_is_read_in_either_byte_order() {
    let one_two = |type_code: &str, body: &[u8]| read_all(&npy(type_code, "False", "(2,)", body)).unwrap().values;
    assert_eq!(one_two("|u1", &[1, 2]), Values::Bytes(vec![1, 2]));
    let integers = Values::Integers(vec![1, -2]);
    assert_eq!(one_two("|i1", &[1, 254]), integers);
    assert_eq!(one_two("<i2", &[1_i16, -2].map(i16::to_le_bytes).concat()), integers);
    assert_eq!(one_two(">i4", &[1_i32, -2].map(i32::to_be_bytes).concat()), integers);
    assert_eq!(one_two("<i8", &[1_i64, -2].map(i64::to_le_bytes).concat()), integers);
    assert_eq!(one_two("|b1", &[0, 1]), Values::Integers(vec![0, 1]));
    assert_eq!(one_two("<u2", &[1, 0, 0, 1]), Values::Integers(vec![1, 256]));
    assert_eq!(
        one_two(">u4", &[0, 0, 0, 1, 0, 0, 1, 0]),
        Values::Integers(vec![1, 256])
    );
    assert_eq!(
        one_two("<u8", &[1, u64::MAX].map(u64::to_le_bytes).concat()),
        Values::Integers(vec![1, i64::MAX])
    );
    let floats = Values::Floats(vec![0.5, -2.0]);
    assert_eq!(one_two("<f4", &[0.5_f32, -2.0].map(f32::to_le_bytes).concat()), floats);
    assert_eq!(one_two(">f8", &[0.5_f64, -2.0].map(f64::to_be_bytes).concat()), floats);
}

#[test]
fn fortran_order_becomes_c_order() {
    // [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]] with the first index fastest.
    let stored = [0, 6, 3, 9, 1, 7, 4, 10, 2, 8, 5, 11];
    let array = read_all(&npy("|u1", "True", "(2, 2, 3)", &stored)).unwrap();
    assert_eq!(
        array,
        Array {
            shape: vec![2, 2, 3],
            values: Values::Bytes((0..12).collect())
        }
    );
}

#[test]
fn sizes_are_checked_against_the_header() {
    let whole = npy("<f4", "False", "(2, 3)", &[0; 24]);
    let (length, short) = (whole.len(), whole.len() - 1);
    let error = format!("truncated: {length} bytes expected, but the data ends after {short}");
    assert_eq!(read_all(&whole[..short]).unwrap_err(), error);
    assert!(
        read_all(&[&whole[..], &[0]].concat())
            .unwrap_err()
            .starts_with("oversized")
    );
    assert!(read_all(&whole[..20]).unwrap_err().starts_with("truncated"));
    let huge = npy("<f8", "False", "(4294967296, 4294967296)", &[]);
    assert!(read_all(&huge).unwrap_err().contains("beyond all memory"));
}

#[test]
fn what_is_not_supported_is_said() {
    assert!(read_all(b"PK\x03\x04....").unwrap_err().contains("not a .npy file"));
    assert!(
        read_all(&npy("<c8", "False", "(1,)", &[0; 8]))
            .unwrap_err()
            .contains("of type `<c8`")
    );
    assert!(
        read_all(&npy("|O", "False", "(1,)", &[0; 8]))
            .unwrap_err()
            .contains("of type `|O`")
    );
    assert!(
        read_all(&npy("<f4", "Maybe", "(1,)", &[0; 4]))
            .unwrap_err()
            .contains("cannot be read")
    );
    assert!(
        read_all(&npy("<f4", "False", "(-1,)", &[0; 4]))
            .unwrap_err()
            .contains("cannot be read")
    );
    assert!(
        read_all(b"\x93NUMPY\x09\x00\x00\x00")
            .unwrap_err()
            .contains("version 9")
    );
    assert!(
        read_all(b"\x93NUMPY\x02\x00\xff\xff\xff\xff")
            .unwrap_err()
            .contains("a .npy header of 4294967295")
    );
    let records = b"\x93NUMPY\x01\x00\x40\x00{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}   ";
    assert!(read_all(records).unwrap_err().contains("of records"));
}

#[test]
fn an_archive_gives_its_arrays_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data.npz");
    let mut archive = zip::ZipWriter::new(File::create(&path).unwrap());
    for (name, method) in [
        ("x", zip::CompressionMethod::Deflated),
        ("y", zip::CompressionMethod::Stored),
    ] {
        archive
            .start_file(
                format!("{name}.npy"),
                SimpleFileOptions::default().compression_method(method),
            )
            .unwrap();
        archive.write_all(&npy("|u1", "False", "(3,)", &[1, 2, 3])).unwrap();
    }
    archive.finish().unwrap();
    let expected = Array {
        shape: vec![3],
        values: Values::Bytes(vec![1, 2, 3]),
    };
    assert_eq!(read_from_archive(&path, "x").unwrap(), expected);
    assert_eq!(read_from_archive(&path, "y").unwrap(), expected);
    let error = read_from_archive(&path, "z").unwrap_err().to_string();
    assert!(
        error.ends_with("data.npz: no array `z` in the archive; there are: x, y"),
        "{error}"
    );
    std::fs::write(&path, [0; 100]).unwrap();
    assert!(
        read_from_archive(&path, "x")
            .unwrap_err()
            .to_string()
            .contains("not a sound .npz archive")
    );
}
