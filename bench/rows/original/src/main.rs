//! Compacts sorted Parquet files into one by the plan of GCHQ's Sleeper, for the benchmarks.
//!
//! `original OUT KEY,KEY LOW HIGH INPUT...` merges the inputs, keeps the rows whose first key is at
//! least LOW and, unless it is empty, below HIGH, and prints a line of JSON. Every setting is one
//! of the original's: a partition of the plan for each input, no dictionaries, row groups of
//! 100,000 rows, pages of 128 KiB, Parquet 2 and zstd. The sketch of the keys, which the original
//! makes beside that, is left out: this is somewhat faster than the original.

use std::error::Error;
use std::fs;

use datafusion::common::config::TableParquetOptions;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::logical_expr::SortExpr;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionConfig, SessionContext, col, lit};

const ROW_GROUP_ROWS: usize = 100_000;
const PAGE_BYTES: usize = 128 * 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, keys, low, high, inputs @ ..] = arguments.as_slice() else {
        return Err("usage: original OUT KEY,KEY LOW HIGH INPUT...".into());
    };
    let order: Vec<SortExpr> = keys
        .split(',')
        .map(|key| col(key).sort(true, true))
        .collect();
    let merged = merged(inputs, &order, low, high).await?;
    let rows = written(merged, out).await?;
    println!("{{\"rows\": {rows}, \"peak_rss_kb\": {}}}", peak_rss_kb()?);
    Ok(())
}

/// Plans to merge the inputs, which are in `order`.
///
/// Fails if DataFusion would sort instead of merge: that would be another plan than the original's.
async fn merged(
    inputs: &[String],
    order: &[SortExpr],
    low: &str,
    high: &str,
) -> Result<DataFrame, Box<dyn Error>> {
    let config = SessionConfig::new()
        .with_target_partitions(inputs.len())
        .with_repartition_file_scans(false)
        .with_round_robin_repartition(false);
    let context = SessionContext::new_with_config(config);
    let options = ParquetReadOptions::default().file_sort_order(vec![order.to_vec()]);
    let key = || order[0].expr.clone();
    let mut region = key().gt_eq(lit(low));
    if !high.is_empty() {
        region = region.and(key().lt(lit(high)));
    }
    let rows = context
        .read_parquet(inputs.to_vec(), options)
        .await?
        .filter(region)?
        .sort(order.to_vec())?;
    let plan = rows.clone().create_physical_plan().await?;
    let text = displayable(plan.as_ref()).indent(false).to_string();
    if text.contains("SortExec") || (inputs.len() > 1 && !text.contains("SortPreservingMergeExec"))
    {
        return Err(format!("the inputs would not be merged:\n{text}").into());
    }
    Ok(rows)
}

/// Writes one file as the original does, and returns the number of rows in it.
async fn written(rows: DataFrame, out: &str) -> Result<usize, Box<dyn Error>> {
    let mut options = TableParquetOptions::default();
    options.global.compression = Some("zstd(1)".to_string());
    options.global.dictionary_enabled = Some(false);
    options.global.max_row_group_size = ROW_GROUP_ROWS;
    options.global.data_pagesize_limit = PAGE_BYTES;
    options.global.writer_version = "2.0".parse()?;
    let one_file = DataFrameWriteOptions::new().with_single_file_output(true);
    rows.write_parquet(out, one_file, Some(options)).await?;
    let file = fs::File::open(out)?;
    let footer = datafusion::parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&file)?;
    Ok(footer.file_metadata().num_rows() as usize)
}

/// Returns the most memory that this process had at once.
fn peak_rss_kb() -> Result<u64, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    Ok(number
        .ok_or("the kernel does not count the peak of memory")?
        .parse()?)
}
