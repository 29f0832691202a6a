//! Compacts sorted Parquet files into one by the plan of GCHQ's Sleeper, for the benchmarks.
//!
//! `original OUT KEY,KEY SKETCH LOW HIGH INPUT...` merges the inputs, keeps the rows whose first
//! key is at least LOW and, unless it is empty, below HIGH, and prints a line of JSON. Every setting
//! is one of the original's: a partition of the plan for each input, no dictionaries, row groups of
//! 100,000 rows, pages of 128 KiB, Parquet 2 and zstd. If SKETCH is `yes`, the first key of each row
//! is added to a sketch of quantiles by a function within the plan, as the original does; with `no`
//! this is somewhat faster than the original.

mod sketch;

use std::error::Error;
use std::fs;
use std::sync::{Arc, Mutex};

use datafusion::arrow::array::AsArray;
use datafusion::common::config::TableParquetOptions;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::logical_expr::{ColumnarValue, SortExpr, Volatility, create_udf};
use datafusion::physical_plan::displayable;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionConfig, SessionContext, col, lit};

use sketch::Sketch;

const ROW_GROUP_ROWS: usize = 100_000;
const PAGE_BYTES: usize = 128 * 1024;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, keys, sketched, low, high, inputs @ ..] = arguments.as_slice() else {
        return Err("usage: original OUT KEY,KEY yes|no LOW HIGH INPUT...".into());
    };
    let order: Vec<SortExpr> = keys
        .split(',')
        .map(|key| col(key).sort(true, true))
        .collect();
    let sketch = Arc::new(Mutex::new(Sketch::new()));
    let mut merged = merged(inputs, &order, low, high).await?;
    if sketched == "yes" {
        let (first, _) = keys.split_once(',').unwrap_or((keys, ""));
        merged = with_sketch(merged, first, &sketch)?;
    }
    let rows = written(merged, out).await?;
    let sketch = sketch.lock().map_err(|_| "the sketch broke off")?;
    println!(
        "{{\"rows\": {rows}, \"sketched\": {}, \"median\": {:?}, \"peak_rss_kb\": {}}}",
        sketch.rows(),
        sketch.quantile(0.5).unwrap_or(""),
        peak_rss_kb()?
    );
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

/// Adds to the plan that each `key` goes into the sketch.
fn with_sketch(
    rows: DataFrame,
    key: &str,
    sketch: &Arc<Mutex<Sketch>>,
) -> DataFusionResult<DataFrame> {
    let kind = rows
        .schema()
        .field_with_unqualified_name(key)?
        .data_type()
        .clone();
    let sketch = Arc::clone(sketch);
    let add = move |values: &[ColumnarValue]| {
        let ColumnarValue::Array(keys) = &values[0] else {
            return Err(DataFusionError::Internal("a key is no array".to_string()));
        };
        let mut sketch = sketch
            .lock()
            .map_err(|_| DataFusionError::Internal("the sketch broke off".to_string()))?;
        if let Some(texts) = keys.as_string_view_opt() {
            texts.iter().flatten().for_each(|text| sketch.update(text));
        } else if let Some(texts) = keys.as_string_opt::<i32>() {
            texts.iter().flatten().for_each(|text| sketch.update(text));
        } else {
            return Err(DataFusionError::Internal("a key is no text".to_string()));
        }
        Ok(values[0].clone())
    };
    let function = create_udf(
        "sketched",
        vec![kind.clone()],
        kind,
        Volatility::Volatile,
        Arc::new(add),
    );
    rows.with_column(key, function.call(vec![col(key)]))
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
