// Everything that programs do with tables, once: go run . TABLE
//
// With DORMOUSE_HTTP_TOKEN, requests have that token; without, they are signed with the AWS
// credentials of the environment (aws configure export-credentials --format env).
package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"example.com/readings/dormouse"
)

// Reading is a row. A decimal is text, which math/big reads; []byte is base64 in JSON.
type Reading struct {
	Sensor int64            `json:"sensor"`
	At     time.Time        `json:"at"`
	Value  *dormouse.Double `json:"value"`
	Price  *string          `json:"price"`
	Raw    []byte           `json:"raw"`
}

const sensor = 9007199254740993 // 2^53 + 1, which float64 does not have

func main() {
	table := "readings"
	if len(os.Args) > 1 {
		table = os.Args[1]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	client, err := dormouse.New(os.Getenv("DORMOUSE_HTTP_API"), authorize())
	if err != nil {
		log.Fatal(err)
	}
	for _, step := range []func(context.Context, *dormouse.Client, string) error{
		create, insert, upload, ask, askLater,
	} {
		if err := step(ctx, client, table); err != nil {
			log.Fatal(err)
		}
	}
}

func authorize() dormouse.Authorize {
	if token := os.Getenv("DORMOUSE_HTTP_TOKEN"); token != "" {
		return dormouse.Bearer(token)
	}
	return dormouse.SigV4(dormouse.Credentials{
		AccessKeyID:     os.Getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: os.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken:    os.Getenv("AWS_SESSION_TOKEN"),
	}, os.Getenv("AWS_REGION"))
}

func create(ctx context.Context, client *dormouse.Client, table string) error {
	err := client.CreateTable(ctx, dormouse.NewTable{
		Name:     table,
		Schema:   "sensor: long, at: timestamp, value: double?, price: decimal(20,4)?, raw: bytes?",
		RowKeys:  []string{"sensor"},
		SortKeys: []string{"at"},
	}, table+"-create")
	if err != nil {
		return err
	}
	tables, err := client.Tables(ctx)
	if err != nil {
		return err
	}
	isThere := false
	for _, each := range tables {
		isThere = isThere || each.Name == table
	}
	fmt.Printf("created: %t\n", isThere)
	return nil
}

func insert(ctx context.Context, client *dormouse.Client, table string) error {
	value, price := dormouse.Double(0.5), "1234567890123456.7891"
	at := time.Date(2026, 1, 5, 10, 0, 0, 123_456_000, time.UTC)
	rows := []Reading{
		{Sensor: sensor, At: at, Value: &value, Price: &price, Raw: []byte{0, 255}},
		{Sensor: sensor, At: at.Truncate(time.Hour).Add(time.Hour)},
	}
	var location string
	for range 2 { // the second time adds nothing
		var err error
		if location, err = client.Insert(ctx, table, rows, table+"-monday"); err != nil {
			return err
		}
	}
	_, err := client.Follow(ctx, location)
	return err
}

func upload(ctx context.Context, client *dormouse.Client, table string) error {
	folder, err := os.MkdirTemp("", "readings")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	var csv strings.Builder
	csv.WriteString("sensor,at,value,price,raw\n")
	for n := range 25 {
		fmt.Fprintf(&csv, "%d,2026-01-06 00:00,%g,,\n", n, float64(n)/4)
	}
	file := filepath.Join(folder, "Tuesday's file (ü) +1.csv")
	if err := os.WriteFile(file, []byte(csv.String()), 0o600); err != nil {
		return err
	}
	location, err := client.Upload(ctx, table, file)
	if err != nil {
		return err
	}
	found, err := client.Follow(ctx, location)
	fmt.Println("file:", found.State)
	return err
}

func ask(ctx context.Context, client *dormouse.Client, table string) error {
	byKey := dormouse.Question{Keys: [][]any{{sensor}}}
	for row, err := range dormouse.Query[Reading](ctx, client, table, byKey) {
		if err != nil {
			return err
		}
		fmt.Println("row:", row)
	}

	type total struct{ N, Total int64 }
	statement := "SELECT count(*) AS n, sum(sensor)::BIGINT AS total FROM " + table + " WHERE sensor < $1"
	for row, err := range dormouse.SQL[total](ctx, client, statement, 10) {
		if err != nil {
			return err
		}
		fmt.Printf("SQL: %d rows, total %d\n", row.N, row.Total)
	}

	count := 0
	pages := dormouse.Question{Columns: []string{"sensor"}, PageRows: 10}
	for _, err := range dormouse.Query[Reading](ctx, client, table, pages) {
		if err != nil {
			return err
		}
		count++
	}
	fmt.Printf("pages: %d rows\n", count)
	return nil
}

func askLater(ctx context.Context, client *dormouse.Client, table string) error {
	question := dormouse.Question{Where: "value >= 1"}
	location, err := client.QueryLater(ctx, table, question, table+"-later")
	if err != nil {
		return err
	}
	var sum dormouse.Double
	for row, err := range dormouse.Result[Reading](ctx, client, location) {
		if err != nil {
			return err
		}
		sum += *row.Value
	}
	fmt.Printf("later: %g\n", sum)

	var ingested int64
	finished := url.Values{"kind": {"ingest"}, "state": {"finished"}, "limit": {"1"}}
	for job, err := range client.Jobs(ctx, table, finished) {
		if err != nil {
			return err
		}
		ingested += job.Rows
	}
	fmt.Printf("jobs: %d rows\n", ingested)

	for _, err := range dormouse.Query[Reading](ctx, client, "nothing", dormouse.Question{}) {
		var problem *dormouse.Problem
		if !errors.As(err, &problem) {
			return err
		}
		fmt.Printf("problem: %d %s\n", problem.Status, problem.Detail)
	}
	return nil
}

// String shows a row with all its digits.
func (r Reading) String() string {
	value, price, raw := "null", "null", "null"
	if r.Value != nil {
		value = fmt.Sprintf("%g", *r.Value)
	}
	if r.Price != nil {
		price = *r.Price
	}
	if r.Raw != nil {
		raw = hex.EncodeToString(r.Raw)
	}
	return fmt.Sprintf("%d %s %s %s %s", r.Sensor, r.At.Format(time.RFC3339Nano), value, price, raw)
}
