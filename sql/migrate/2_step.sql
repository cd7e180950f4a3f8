DO {{tag}}
BEGIN
    IF NOT EXISTS (SELECT FROM quota_migrations WHERE name = {{name}}) THEN
        EXECUTE {{body}};
        INSERT INTO quota_migrations (name, checksum) VALUES ({{name}}, {{checksum}});
    ELSIF NOT EXISTS (SELECT FROM quota_migrations WHERE name = {{name}} AND checksum = {{checksum}}) THEN
        RAISE WARNING 'the migration % was applied with another text than this program has', {{name}};
    END IF;
END
{{tag}};
