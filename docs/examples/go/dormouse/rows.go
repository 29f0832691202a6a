package dormouse

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
)

// Question says which rows of a table are wanted; keys are whole keys or their first parts.
type Question struct {
	Keys     [][]any  `json:"keys,omitempty"`
	Where    string   `json:"where,omitempty"`
	Columns  []string `json:"columns,omitempty"`
	PageRows int      `json:"page_rows,omitempty"`
	After    string   `json:"after,omitempty"`
}

// Jobs yields the jobs of a table, page by page; filter has their kind, their state, both or none.
func (c *Client) Jobs(ctx context.Context, table string, filter url.Values) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for after := ""; ; {
			query := url.Values{"after": {after}}
			maps.Copy(query, filter)
			var found struct {
				Items []Job  `json:"items"`
				Next  string `json:"next"`
			}
			path := "/tables/" + url.PathEscape(table) + "/jobs?" + query.Encode()
			if err := c.call(ctx, "GET", path, nil, nil, &found); err != nil {
				yield(Job{}, err)
				return
			}
			for _, job := range found.Items {
				if !yield(job, nil) {
					return
				}
			}
			if after = found.Next; after == "" {
				return
			}
		}
	}
}

type page[Row any] struct {
	Rows     []Row  `json:"rows"`
	Next     string `json:"next"`
	Location string `json:"location"` // of an answer that comes later
}

// Query yields the rows of a question, page by page: all are of the version that the first one
// read. A Row is a struct; whole numbers of 64 bits keep their digits in a field of type int64, and
// do not in a map[string]any.
func Query[Row any](
	ctx context.Context, c *Client, table string, question Question,
) iter.Seq2[Row, error] {
	path := "/tables/" + url.PathEscape(table) + "/query"
	return func(yield func(Row, error) bool) {
		for {
			var found page[Row]
			if err := c.call(ctx, "POST", path, nil, question, &found); err != nil {
				yield(*new(Row), err)
				return
			}
			if !yieldPage(ctx, c, found, yield) || found.Next == "" {
				return
			}
			question.After = found.Next
		}
	}
}

// SQL yields the rows of a statement; what is too large for one answer comes as files.
func SQL[Row any](
	ctx context.Context, c *Client, text string, parameters ...any,
) iter.Seq2[Row, error] {
	statement := struct {
		Text       string `json:"text"`
		Parameters []any  `json:"parameters"`
	}{text, append([]any{}, parameters...)}
	return func(yield func(Row, error) bool) {
		var found page[Row]
		if err := c.call(ctx, "POST", "/sql", nil, statement, &found); err != nil {
			yield(*new(Row), err)
			return
		}
		yieldPage(ctx, c, found, yield)
	}
}

// QueryLater lets a question be answered as files, however many rows there are; it returns the
// location at which the query is followed.
func (c *Client) QueryLater(
	ctx context.Context, table string, question Question, key string,
) (string, error) {
	headers := http.Header{
		"Accept":          {"application/x-ndjson"},
		"Prefer":          {"respond-async"},
		"Idempotency-Key": {key},
	}
	var accepted struct{ Location string }
	path := "/tables/" + url.PathEscape(table) + "/query"
	return accepted.Location, c.call(ctx, "POST", path, headers, question, &accepted)
}

// Result waits for a query that is answered later, and yields the rows of its files.
func Result[Row any](ctx context.Context, c *Client, location string) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		query, err := c.Follow(ctx, location)
		var files []struct{ URL string }
		if err == nil {
			err = json.Unmarshal(query.Files, &files)
		}
		if err != nil {
			yield(*new(Row), err)
			return
		}
		for _, file := range files {
			if !yieldFile(ctx, c, file.URL, yield) {
				return
			}
		}
	}
}

func yieldPage[Row any](
	ctx context.Context, c *Client, found page[Row], yield func(Row, error) bool,
) bool {
	if found.Location != "" {
		Result[Row](ctx, c, found.Location)(yield)
		return false
	}
	for _, row := range found.Rows {
		if !yield(row, nil) {
			return false
		}
	}
	return true
}

// yieldFile yields the rows of a file of JSON lines, and returns whether more are wanted.
func yieldFile[Row any](
	ctx context.Context, c *Client, link string, yield func(Row, error) bool,
) bool {
	response, err := c.send(ctx, "GET", link, nil, nil)
	if err != nil {
		yield(*new(Row), err)
		return false
	}
	defer response.Body.Close()
	for lines := json.NewDecoder(response.Body); ; {
		var row Row
		err := lines.Decode(&row)
		if errors.Is(err, io.EOF) {
			return true
		}
		if !yield(row, err) || err != nil {
			return false
		}
	}
}
