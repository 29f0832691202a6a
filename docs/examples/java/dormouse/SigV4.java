package dormouse;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.net.URI;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Clock;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.stream.Collectors;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/**
 * Signs requests for an HTTP API whose callers IAM knows, by AWS's signatures of version 4. The AWS
 * SDK has the same as {@code AwsV4HttpSigner} of http-auth-aws.
 *
 * @param sessionToken null or empty for the keys of a user
 */
public record SigV4(
        String accessKeyId, String secretAccessKey, String sessionToken, String region, Clock clock)
        implements Authorization {
    private static final String ALGORITHM = "AWS4-HMAC-SHA256";
    private static final DateTimeFormatter TIME =
            DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);

    @Override
    public Map<String, String> headers(String method, URI uri, byte[] body) {
        String time = TIME.format(clock.instant());
        SortedMap<String, String> signed = new TreeMap<>();
        signed.put("host", uri.getRawAuthority());
        signed.put("x-amz-date", time);
        if (sessionToken != null && !sessionToken.isEmpty()) {
            signed.put("x-amz-security-token", sessionToken);
        }
        String names = String.join(";", signed.keySet());
        String lines =
                signed.entrySet().stream()
                        .map(each -> each.getKey() + ":" + each.getValue() + "\n")
                        .collect(Collectors.joining());
        // What the URI has is encoded once more, as every service but S3 wants it.
        String path = encode(uri.getRawPath()).replace("%2F", "/");
        String canonical =
                String.join("\n", method, path, canonicalQuery(uri), lines, names, sha256(body));
        String scope = time.substring(0, 8) + "/" + region + "/execute-api/aws4_request";
        String text = String.join("\n", ALGORITHM, time, scope, sha256(canonical.getBytes(UTF_8)));
        byte[] key = ("AWS4" + secretAccessKey).getBytes(UTF_8);
        for (String part : scope.split("/")) {
            key = hmac(key, part);
        }
        Map<String, String> added = new TreeMap<>(signed);
        added.remove("host"); // the client sends it by itself, and lets nobody else
        added.put(
                "Authorization",
                "%s Credential=%s/%s, SignedHeaders=%s, Signature=%s"
                        .formatted(ALGORITHM, accessKeyId, scope, names, hex(hmac(key, text))));
        return added;
    }

    private static String canonicalQuery(URI uri) {
        if (uri.getRawQuery() == null) {
            return "";
        }
        return Arrays.stream(uri.getRawQuery().split("&"))
                .map(pair -> (pair + "=").split("=", 3))
                .map(pair -> encode(decode(pair[0])) + "=" + encode(decode(pair[1])))
                .sorted()
                .collect(Collectors.joining("&"));
    }

    private static String decode(String text) {
        return URLDecoder.decode(text, UTF_8);
    }

    /** Encodes all but A-Z a-z 0-9 - . _ ~ */
    static String encode(String text) {
        return URLEncoder.encode(text, UTF_8)
                .replace("+", "%20")
                .replace("*", "%2A")
                .replace("%7E", "~");
    }

    private static String sha256(byte[] content) {
        try {
            return hex(MessageDigest.getInstance("SHA-256").digest(content));
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error); // every Java has it
        }
    }

    private static byte[] hmac(byte[] key, String text) {
        try {
            Mac mac = Mac.getInstance("HmacSHA256");
            mac.init(new SecretKeySpec(key, "HmacSHA256"));
            return mac.doFinal(text.getBytes(UTF_8));
        } catch (GeneralSecurityException error) {
            throw new IllegalStateException(error); // every Java has it
        }
    }

    private static String hex(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
