package dormouse;

import java.net.URI;
import java.util.Map;

/** What lets the API know who asks: a token, or a signature ({@link SigV4}). */
@FunctionalInterface
public interface Authorization {
    /** Returns the headers to add to a request. */
    Map<String, String> headers(String method, URI uri, byte[] body);

    static Authorization bearer(String token) {
        return (method, uri, body) -> Map.of("Authorization", "Bearer " + token);
    }
}
