//! How much memory this process has taken.

/// The most memory that this process has held at once, in bytes: `VmHWM` of Linux; `None` on other systems.
pub(super) fn peak_rss_bytes() -> Option<u64> {
    if cfg!(target_os = "linux") {
        parse(&std::fs::read_to_string("/proc/self/status").ok()?)
    } else {
        None
    }
}

fn parse(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_read_in_kibibytes() {
        assert_eq!(
            parse("VmPeak:\t  9 kB\nVmHWM:\t    12 kB\nVmRSS:\t 3 kB\n"),
            Some(12 * 1024)
        );
        assert_eq!(parse("Name:\tselvedge\n"), None);
        assert_eq!(parse("VmHWM:\t999999999999999999 kB\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_has_held_what_it_holds() {
        let held = vec![1u8; 1 << 20];
        assert!(peak_rss_bytes().unwrap() >= held.len() as u64);
    }
}
