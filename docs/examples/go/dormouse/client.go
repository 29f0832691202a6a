// Package dormouse is a client of Dormouse's HTTP API. It needs the standard library alone.
package dormouse

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Authorize adds a token or a signature to a request; body is what will be sent.
type Authorize func(r *http.Request, body []byte)

// Bearer adds a token.
func Bearer(token string) Authorize {
	return func(r *http.Request, _ []byte) { r.Header.Set("Authorization", "Bearer "+token) }
}

// Problem is what the API answers to a request that it does not carry out (RFC 9457).
type Problem struct {
	Status  int    `json:"status"`
	Detail  string `json:"detail"`
	Hint    string `json:"hint"`
	Message string `json:"message"` // all that API Gateway says when it refuses a request itself
}

func (p *Problem) Error() string {
	if p.Hint == "" {
		return fmt.Sprintf("%d: %s", p.Status, p.Detail)
	}
	return fmt.Sprintf("%d: %s; %s", p.Status, p.Detail, p.Hint)
}

// Failed is the end of what was accepted, and has failed since, or was refused or cancelled.
type Failed struct{ Location, State, Reason string }

func (f *Failed) Error() string { return f.Location + " " + f.State + ": " + f.Reason }

// Client asks one API. It can be used by many goroutines at once.
type Client struct {
	api       *url.URL
	authorize Authorize
	http      *http.Client
}

// New returns a client of the API at an address.
func New(api string, authorize Authorize) (*Client, error) {
	parsed, err := url.Parse(api)
	if err != nil {
		return nil, err
	}
	return &Client{parsed, authorize, &http.Client{}}, nil
}

// Job is a job of a table in a list.
type Job struct {
	ID    string `json:"id"`
	Kind  string `json:"kind"`
	State string `json:"state"`
	Rows  int64  `json:"rows"`
}

// Table is a table in a list.
type Table struct {
	Name    string   `json:"name"`
	RowKeys []string `json:"row_keys"`
}

// NewTable is a table to create. The schema is in its short form.
type NewTable struct {
	Name     string   `json:"name"`
	Schema   string   `json:"schema"`
	RowKeys  []string `json:"row_keys"`
	SortKeys []string `json:"sort_keys,omitempty"`
}

// Tables lists the tables that the caller may use.
func (c *Client) Tables(ctx context.Context) ([]Table, error) {
	var found struct {
		Tables []Table `json:"tables"`
	}
	return found.Tables, c.call(ctx, "GET", "/tables", nil, nil, &found)
}

// CreateTable creates a table, and waits until it is there.
func (c *Client) CreateTable(ctx context.Context, table NewTable, key string) error {
	var accepted struct{ Location string }
	headers := http.Header{"Idempotency-Key": {key}}
	if err := c.call(ctx, "POST", "/tables", headers, table, &accepted); err != nil {
		return err
	}
	_, err := c.Follow(ctx, accepted.Location)
	return err
}

// Insert adds rows, a slice of structs. They are durable when it returns the location at which they
// can be followed until queries see them. Sent again under one key, they add nothing.
func (c *Client) Insert(ctx context.Context, table string, rows any, key string) (string, error) {
	var taken struct{ Location string }
	headers := http.Header{"Idempotency-Key": {key}}
	path := "/tables/" + url.PathEscape(table) + "/rows"
	return taken.Location, c.call(ctx, "POST", path, headers, rows, &taken)
}

// Upload uploads a file, which becomes rows, and returns the location at which that is followed.
func (c *Client) Upload(ctx context.Context, table, file string) (string, error) {
	var to struct{ URL, Method, Location string }
	path := "/tables/" + url.PathEscape(table) + "/files"
	name := map[string]string{"name": filepath.Base(file)}
	if err := c.call(ctx, "POST", path, nil, name, &to); err != nil {
		return "", err
	}
	if to.URL[0] == '/' { // of a machine, or the API itself: it wants the token
		content, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		response, err := c.send(ctx, to.Method, to.URL, nil, content)
		if err != nil {
			return "", err
		}
		return to.Location, response.Body.Close()
	}
	return to.Location, c.put(ctx, to.Method, to.URL, file)
}

// put sends a file to a link of S3, which needs no token and no signature.
func (c *Client) put(ctx context.Context, method, link, file string) error {
	content, err := os.Open(file)
	if err != nil {
		return err
	}
	defer content.Close()
	about, err := content.Stat()
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, link, content)
	if err != nil {
		return err
	}
	request.ContentLength = about.Size() // S3 takes no chunks without a length
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return problemOf(response)
}

// State is how far something is that was accepted.
type State struct {
	State  string          `json:"state"`
	Reason string          `json:"reason"`
	Files  json.RawMessage `json:"files"` // of a query, a list; of a request, how many
}

// Follow waits until what a location shows has ended, and returns it; the context bounds the wait.
// It is a *Failed if that has failed, or was refused or cancelled.
func (c *Client) Follow(ctx context.Context, location string) (State, error) {
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		var found State
		if err := c.call(ctx, "GET", location, nil, nil, &found); err != nil {
			return found, err
		}
		switch found.State {
		case "failed", "refused", "cancelled":
			return found, &Failed{location, found.State, found.Reason}
		case "waiting", "accepted", "running":
		default:
			return found, nil
		}
		select {
		case <-ctx.Done():
			return found, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// call sends a value as JSON, and reads the answer into another.
func (c *Client) call(
	ctx context.Context, method, path string, headers http.Header, value, into any,
) error {
	var body []byte
	if value != nil {
		var err error
		if body, err = json.Marshal(value); err != nil {
			return err
		}
	}
	response, err := c.send(ctx, method, path, headers, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	return json.NewDecoder(response.Body).Decode(into)
}

// send sends a request to a path of the API. The caller closes the body of the response.
func (c *Client) send(
	ctx context.Context, method, path string, headers http.Header, body []byte,
) (*http.Response, error) {
	target, err := c.api.Parse(path)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range headers {
		request.Header[name] = values
	}
	if body != nil && request.Header.Get("Content-Type") == "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if target.Host == c.api.Host && target.Scheme == c.api.Scheme {
		c.authorize(request, body) // nobody else gets the token
	}
	response, err := c.http.Do(request)
	if err != nil {
		return nil, err
	}
	if err := problemOf(response); err != nil {
		return nil, errors.Join(err, response.Body.Close())
	}
	return response, nil
}

// problemOf returns a *Problem unless a response has a status of success.
func problemOf(response *http.Response) error {
	if response.StatusCode < 300 {
		return nil
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	problem := &Problem{}
	if json.Unmarshal(text, problem) != nil { // it was answered by something on the way
		problem.Detail = string(text)
	}
	if problem.Detail == "" {
		problem.Detail = problem.Message
	}
	problem.Status = response.StatusCode
	return problem
}
