package dormouse

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"time"
)

// Credentials are those of an IAM user, or with a session token those of a role.
type Credentials struct{ AccessKeyID, SecretAccessKey, SessionToken string }

// SigV4 signs requests for an HTTP API whose callers IAM knows, by AWS's signatures of version 4.
// The AWS SDK has the same as package aws/signer/v4.
func SigV4(by Credentials, region string) Authorize {
	return func(r *http.Request, body []byte) {
		now := time.Now().UTC().Format("20060102T150405Z")
		r.Header.Set("X-Amz-Date", now)
		names := []string{"host", "x-amz-date"}
		if by.SessionToken != "" {
			r.Header.Set("X-Amz-Security-Token", by.SessionToken)
			names = append(names, "x-amz-security-token")
		}
		var headers strings.Builder
		for _, name := range names {
			value := r.Header.Get(name)
			if name == "host" {
				value = r.URL.Host
			}
			fmt.Fprintf(&headers, "%s:%s\n", name, value)
		}
		signed := strings.Join(names, ";")
		canonical := strings.Join([]string{
			r.Method, canonicalPath(r.URL), canonicalQuery(r.URL), headers.String(), signed, digest(body),
		}, "\n")
		scope := now[:8] + "/" + region + "/execute-api/aws4_request"
		text := "AWS4-HMAC-SHA256\n" + now + "\n" + scope + "\n" + digest([]byte(canonical))
		key := []byte("AWS4" + by.SecretAccessKey)
		for _, part := range strings.Split(scope, "/") {
			key = mac(key, part)
		}
		r.Header.Set("Authorization", fmt.Sprintf(
			"AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%x",
			by.AccessKeyID, scope, signed, mac(key, text),
		))
	}
}

// canonicalPath encodes once more what is sent, as every service but S3 wants it.
func canonicalPath(u *url.URL) string {
	return strings.ReplaceAll(encode(u.EscapedPath()), "%2F", "/")
}

func canonicalQuery(u *url.URL) string {
	var pairs []string
	for name, values := range u.Query() {
		for _, value := range values {
			pairs = append(pairs, encode(name)+"="+encode(value))
		}
	}
	sort.Strings(pairs)
	return strings.Join(pairs, "&")
}

// encode encodes all but A-Z a-z 0-9 - . _ ~
func encode(text string) string {
	return strings.ReplaceAll(url.QueryEscape(text), "+", "%20")
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	hash := hmac.New(sha256.New, key)
	hash.Write([]byte(text))
	return hash.Sum(nil)
}
