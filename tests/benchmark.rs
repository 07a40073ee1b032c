//! `selvedge bench` measures this machine.

#![allow(clippy::unwrap_used, clippy::panic)] // What cannot go on must fail.

use std::process::Command;

use serde_json::Value;

/// Visits every number.
fn numbers(value: &Value, visit: &mut impl FnMut(f64)) {
    match value {
        Value::Number(number) => visit(number.as_f64().unwrap()),
        Value::Array(values) => values.iter().for_each(|value| numbers(value, visit)),
        Value::Object(fields) => fields.values().for_each(|value| numbers(value, visit)),
        Value::String(_) => {}
        Value::Null | Value::Bool(_) => panic!("{value} is no figure"),
    }
}

#[test]
fn every_figure_is_measured() {
    let output = Command::new(env!("CARGO_BIN_EXE_selvedge"))
        .args(["bench", "--turns", "1", "--workers", "2", "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let benchmark: Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut count = 0;
    numbers(&benchmark, &mut |figure| {
        assert!(figure > 0.0 && figure.is_finite());
        count += 1;
    });
    // How often, the peak, a convolution, seven steps, four rounds, and aggregation.
    assert_eq!(count, 1 + 1 + 3 + 7 * 3 + 4 * 4 + 1);
}
