package dormouse;

import static java.nio.charset.StandardCharsets.UTF_8;

import com.fasterxml.jackson.annotation.JsonInclude;
import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.SerializationFeature;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.datatype.jsr310.JavaTimeModule;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.function.UnaryOperator;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;

/** A client of Dormouse's HTTP API, with java.net.http and Jackson. Threads may share one. */
public final class Dormouse {
    private static final Set<String> UNDER_WAY = Set.of("waiting", "accepted", "running");
    private static final Set<String> FAILED = Set.of("failed", "refused", "cancelled");
    private static final Duration TIMEOUT = Duration.ofSeconds(60);

    /** Longs keep their digits, decimals stay BigDecimal, times are ISO 8601, bytes base64. */
    private static final JsonMapper JSON =
            JsonMapper.builder()
                    .addModule(new JavaTimeModule())
                    .propertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE)
                    .disable(SerializationFeature.WRITE_DATES_AS_TIMESTAMPS)
                    .disable(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES)
                    .enable(DeserializationFeature.USE_BIG_DECIMAL_FOR_FLOATS)
                    .enable(JsonGenerator.Feature.WRITE_BIGDECIMAL_AS_PLAIN)
                    .build();

    private final URI api;
    private final Authorization authorization;
    private final HttpClient http = HttpClient.newBuilder().connectTimeout(TIMEOUT).build();

    public Dormouse(URI api, Authorization authorization) {
        this.api = api;
        this.authorization = authorization;
    }

    /** A table in a list. */
    public record Table(String name, List<String> rowKeys) {}

    /** A job of a table in a list. */
    public record Job(String id, String kind, String state, long rows) {}

    /** A table to create; the schema is in its short form. */
    @JsonInclude(JsonInclude.Include.NON_NULL)
    public record NewTable(
            String name, String schema, List<String> rowKeys, List<String> sortKeys) {}

    public List<Table> tables() {
        return convert(json(send("GET", "/tables")).path("tables"), Table.class).toList();
    }

    /** Creates a table, and waits until it is there. */
    public void createTable(NewTable table, String idempotencyKey) {
        follow(post("/tables", table, "Idempotency-Key", idempotencyKey).path("location").asText());
    }

    /**
     * Adds rows, which are durable when this returns the location at which they can be followed
     * until queries see them. Sent again under one key, they add nothing.
     */
    public String insert(String table, List<?> rows, String idempotencyKey) {
        String path = "/tables/" + SigV4.encode(table) + "/rows";
        return post(path, rows, "Idempotency-Key", idempotencyKey).path("location").asText();
    }

    /** Uploads a file, which becomes rows; returns the location at which that is followed. */
    public String upload(String table, Path file) {
        String path = "/tables/" + SigV4.encode(table) + "/files";
        JsonNode to = post(path, Map.of("name", file.getFileName().toString()));
        String method = to.path("method").asText(), url = to.path("url").asText();
        try {
            if (url.startsWith("/")) { // of a machine, or the API itself: it wants the token
                send(method, url, Files.readAllBytes(file)).body().close();
            } else {
                var upload = HttpRequest.newBuilder(URI.create(url));
                checked(upload.method(method, BodyPublishers.ofFile(file))).body().close();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return to.path("location").asText();
    }

    /** Returns the jobs of a table that have a kind and a state, page by page. */
    public Stream<Job> jobs(String table, String kind, String state, int pageJobs) {
        String path =
                "/tables/%s/jobs?kind=%s&state=%s&limit=%d&after="
                        .formatted(SigV4.encode(table), kind, state, pageJobs);
        UnaryOperator<JsonNode> next =
                page -> {
                    String after = page.path("next").asText();
                    return after.isEmpty() ? null : json(send("GET", path + SigV4.encode(after)));
                };
        return Stream.iterate(json(send("GET", path)), Objects::nonNull, next)
                .flatMap(page -> convert(page.path("items"), Job.class));
    }

    /**
     * Returns the rows of a question. Pages are asked for as the stream gets to them; all are of
     * the version that the first one read.
     */
    public <R> Stream<R> query(String table, Question question, Class<R> row) {
        String path = "/tables/" + SigV4.encode(table) + "/query";
        JsonNode first = post(path, question);
        if (first.hasNonNull("location")) {
            return result(first.path("location").asText(), row);
        }
        return Stream.iterate(first, Objects::nonNull, page -> next(path, question, page))
                .flatMap(page -> convert(page.path("rows"), row));
    }

    private JsonNode next(String path, Question question, JsonNode page) {
        String next = page.path("next").asText();
        return next.isEmpty() ? null : post(path, question.after(next));
    }

    /** Returns the rows of a statement; what is too large for one answer comes as files. */
    public <R> Stream<R> sql(String text, List<?> parameters, Class<R> row) {
        JsonNode found = post("/sql", Map.of("text", text, "parameters", parameters));
        if (found.hasNonNull("location")) {
            return result(found.path("location").asText(), row);
        }
        return convert(found.path("rows"), row);
    }

    /**
     * Lets a question be answered as files, however many rows there are; returns the location at
     * which the query is followed.
     */
    public String queryLater(String table, Question question, String idempotencyKey) {
        String path = "/tables/" + SigV4.encode(table) + "/query";
        String[] headers = {
            "Accept", "application/x-ndjson",
            "Prefer", "respond-async",
            "Idempotency-Key", idempotencyKey
        };
        return post(path, question, headers).path("location").asText();
    }

    /** Waits for a query that is answered later, and returns the rows of its files. */
    public <R> Stream<R> result(String location, Class<R> row) {
        JsonNode files = follow(location).path("files");
        return StreamSupport.stream(files.spliterator(), false)
                .flatMap(file -> lines(send("GET", file.path("url").asText()), row));
    }

    private static <R> Stream<R> lines(HttpResponse<InputStream> response, Class<R> row) {
        try {
            var rows = JSON.readerFor(row).<R>readValues(response.body());
            Iterable<R> each = () -> rows;
            return StreamSupport.stream(each.spliterator(), false);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Waits until what a location shows has ended, and returns it. */
    public JsonNode follow(String location) {
        Instant deadline = Instant.now().plus(Duration.ofMinutes(5));
        for (long pauseMillis = 100; ; pauseMillis = Math.min(2 * pauseMillis, 2000)) {
            JsonNode found = json(send("GET", location));
            String state = found.path("state").asText();
            if (FAILED.contains(state)) {
                throw new FailedException(location, state, found.path("reason").asText());
            }
            if (!UNDER_WAY.contains(state)) {
                return found;
            }
            if (Instant.now().isAfter(deadline)) {
                throw new IllegalStateException(location + " is still " + state);
            }
            pause(pauseMillis);
        }
    }

    private JsonNode post(String path, Object value, String... headers) {
        try {
            return json(send("POST", path, JSON.writeValueAsBytes(value), headers));
        } catch (JsonProcessingException error) {
            throw new UncheckedIOException(error);
        }
    }

    private HttpResponse<InputStream> send(String method, String target) {
        return send(method, target, null);
    }

    /** Sends a request to a path of the API, or to a link that needs no token and no signature. */
    private HttpResponse<InputStream> send(
            String method, String target, byte[] body, String... headers) {
        URI uri = api.resolve(target);
        var request = HttpRequest.newBuilder(uri).timeout(TIMEOUT);
        request.method(
                method, body == null ? BodyPublishers.noBody() : BodyPublishers.ofByteArray(body));
        if (body != null) {
            request.header("Content-Type", "application/json");
        }
        for (int n = 0; n < headers.length; n += 2) {
            request.header(headers[n], headers[n + 1]);
        }
        if (uri.getRawAuthority().equals(api.getRawAuthority())
                && uri.getScheme().equals(api.getScheme())) { // nobody else gets the token
            byte[] sent = body == null ? new byte[0] : body;
            authorization.headers(method, uri, sent).forEach(request::header);
        }
        return checked(request);
    }

    private HttpResponse<InputStream> checked(HttpRequest.Builder request) {
        try {
            var response = http.send(request.build(), BodyHandlers.ofInputStream());
            if (response.statusCode() < 300) {
                return response;
            }
            throw problem(response.statusCode(), new String(response.body().readAllBytes(), UTF_8));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        } catch (InterruptedException error) {
            throw interrupted(error);
        }
    }

    private static ProblemException problem(int status, String text) {
        JsonNode found;
        try {
            found = JSON.readTree(text);
        } catch (JsonProcessingException error) { // it was answered by something on the way
            return new ProblemException(status, text, "");
        }
        // API Gateway's own refusals, of a signature or too many requests, have only a message.
        String detail = found.path("detail").asText(found.path("message").asText(text));
        return new ProblemException(status, detail, found.path("hint").asText());
    }

    private static JsonNode json(HttpResponse<InputStream> response) {
        try (InputStream body = response.body()) {
            return JSON.readTree(body);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static <T> Stream<T> convert(JsonNode items, Class<T> kind) {
        return StreamSupport.stream(items.spliterator(), false)
                .map(item -> JSON.convertValue(item, kind));
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException error) {
            throw interrupted(error);
        }
    }

    private static CancellationException interrupted(InterruptedException error) {
        Thread.currentThread().interrupt();
        var cancelled = new CancellationException("interrupted");
        cancelled.initCause(error);
        return cancelled;
    }
}
